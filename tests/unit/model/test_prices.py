"""What a model costs, and what a wrong price list is told."""

import pytest

from everloop.activities.model.prices import LIST_PRICES, Price, Prices, read_prices
from everloop.workflows.contract.messages import Usage

MINE = Price(input=7, output=9)


@pytest.mark.parametrize(
    ("model", "input_price"),
    [
        ("gpt-4.1-mini", 0.4),
        ("gpt-4.1-mini-2025-04-14", 0.4),
        ("gpt-4.1@eu", 2),
        ("gpt-4o:batch", 2.5),
        ("gpt-4o-2024-08-06", 2.5),
        ("gpt-4o-2024-05-13", 5),
        ("gpt-5-chat-latest", 1.25),
        ("gpt-5-mini-2025-08-07", 0.25),
    ],
)
def test_a_version_costs_what_its_model_costs(model: str, input_price: float) -> None:
    """The longest listed name that a model begins with counts."""
    price = LIST_PRICES.find(model)
    assert price
    assert price.input == input_price


@pytest.mark.parametrize("model", ["", "gpt", "gpt-4.15", "gpt-4.1x", "gpt-6", "my/gpt-4.1", "llama3"])
def test_other_models_have_no_price(model: str) -> None:
    """A name that only looks alike is not priced by guess, and costs nothing."""
    usage = Usage(input_tokens=10, output_tokens=10)
    assert LIST_PRICES.find(model) is None
    assert LIST_PRICES.add_cost(model, usage) == usage


def test_prices_are_added_and_replaced() -> None:
    """A price of one's own counts for its model and its versions; the rest of the list stays."""
    prices = Prices({"llama3": MINE, "gpt-4.1": MINE})
    assert prices.find("llama3:8b") == prices.find("gpt-4.1-2025-04-14") == MINE
    assert prices.find("gpt-4.1-mini") == LIST_PRICES.find("gpt-4.1-mini")
    assert LIST_PRICES.find("llama3") is None


def test_a_price_list_is_read() -> None:
    """In dollars for a million tokens; a model of one's own may cost nothing."""
    prices = Prices(read_prices('{"m": {"input": 2, "output": 8}, "free": {"input": 0, "output": 0.0}}'))
    used = Usage(input_tokens=500_000, output_tokens=250_000)
    assert prices.add_cost("m", used) == used.model_copy(update={"cost": 3})
    assert prices.find("free") == Price(input=0, output=0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Invalid JSON"),
        ("{m: secret}", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"m": "secret"}', "m: "),
        ('{"m": {"input": 1}}', "m: output: Field required"),
        ('{"m": {"input": -1, "output": 1}}', "m: input: "),
        ('{"m": {"input": "secret", "output": 1}}', "m: input: "),
        ('{"m": {"input": 1, "output": NaN}}', "m: output: "),
        ('{"m": {"input": 1, "output": 1, "cached": 1}}', "m: cached: "),
    ],
)
def test_a_wrong_price_list_is_explained(text: str, said: str) -> None:
    """One line says where it is wrong and what is expected, without the value."""
    with pytest.raises(ValueError, match="US dollars per million tokens") as caught:
        read_prices(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
