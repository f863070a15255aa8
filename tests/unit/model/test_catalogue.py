"""Providers and models by name, their known properties, and errors of models.toml."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from everloop.models.catalogue import Catalogue, ModelEntry, Provider, UnknownModelError
from everloop.models.file import ModelsFileError, Price
from everloop.workflows.contract.messages import Usage

OFFICE = """
[providers.office]
base_url = "http://gpu:8000/v1"
key_variable = "OFFICE_KEY"
headers = { X-Team = "search", X-Sign = "$OFFICE_SIGN" }
omit = ["stream_options"]
settings = { first_token = 60, retries = 30, extra_body = { a = 1 } }

[models."office/qwen3"]
window = 40_960
omit = ["seed"]
settings = { retries = 3, extra_body = { b = 2 } }

[models."office/qwen3-big"]
starts_thinking = true
"""
VARIABLES = {"OFFICE_KEY": "s3cret", "OFFICE_SIGN": "signed"}


def load(path: Path, text: str = "", *, default: str | None = None, **variables: str) -> Catalogue:
    """Load the shipped catalogue with this file merged over it."""
    file = path / "models.toml"
    file.write_text(text)
    return Catalogue.load(file, default, variables)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("gpt-4.1-mini", "openai", "gpt-4.1-mini"),
        ("openai/gpt-4.1-mini", "openai", "gpt-4.1-mini"),
        ("openrouter/anthropic/claude", "openrouter", "anthropic/claude"),
        ("office/qwen3:8b", "office", "qwen3:8b"),
        (None, "ollama", "qwen3"),
    ],
)
def test_the_first_slash_parts_provider_and_model(
    tmp_path: Path, name: str | None, provider: str, model: str
) -> None:
    """Without one it is a model of OpenAI; otherwise the rest is the whole model name."""
    chosen = load(tmp_path, OFFICE, default="ollama/qwen3").find(name, "a")
    assert (chosen.provider.name, chosen.model, chosen.name) == (provider, model, f"{provider}/{model}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "agent 'a' names no model: set EVERLOOP_MODEL, or Agent(model=…)"),
        ("ofice/x", "no provider is called 'ofice': did you mean office/x?"),
        ("Zzz/Q", "no provider is called 'Zzz': did you mean openai/Zzz/Q?"),
        ("office/", "agent 'a' asks 'office/', which names no model: write provider/model"),
    ],
)
def test_a_provider_is_never_guessed(tmp_path: Path, name: str | None, told: str) -> None:
    """The line suggests the meant one."""
    with pytest.raises(UnknownModelError) as caught:
        load(tmp_path, OFFICE).find(name, "a")
    assert told in str(caught.value)


def test_a_longer_entry_lies_over_a_shorter_one(tmp_path: Path) -> None:
    """And both win over the provider's entry, field by field and setting by setting."""
    catalogue = load(tmp_path, OFFICE, **VARIABLES)
    other, small, big = (catalogue.find(f"office/{name}", "a") for name in ("x", "qwen3:8b", "qwen3-big@eu"))

    assert (other.window, other.settings.retries, other.settings.extra_body) == (None, 30, {"a": 1})
    assert (small.window, small.settings.retries, small.settings.extra_body) == (40_960, 3, {"a": 1, "b": 2})
    assert small.settings.first_token == timedelta(seconds=60)
    assert (big.window, big.starts_thinking, small.starts_thinking) == (40_960, True, False)
    assert big.provider.entry(big.model).omit == {"stream_options", "seed"}
    assert big.output == ()


def test_files_of_the_user_lie_over_the_one_that_ships(tmp_path: Path) -> None:
    """Field by field: a user's price leaves the window."""
    price = '[models."deepseek/deepseek-v4"]\nprice = {input = 1, output = 2}'
    text = f"[providers.deepseek]\nconcurrency = 2\n{price}"
    chosen = load(tmp_path, text).find("deepseek/deepseek-v4-pro", "a")
    assert (chosen.window, chosen.price) == (1_000_000, Price(1, 2))
    assert (chosen.provider.concurrency, chosen.provider.fill_message) == (2, {"reasoning_content": ""})


def test_another_address_is_another_provider(tmp_path: Path) -> None:
    """Shipped entries of OpenAI hold at its own address alone; the user's hold for the user's address."""
    text = '[models."openai/mine"]\nprice = {input = 1, output = 2}'
    away = load(tmp_path, text, OPENAI_BASE_URL="http://gpu:1/v1", OPENAI_API_KEY="k")
    home = load(tmp_path, text, OPENAI_BASE_URL="https://api.openai.com/v1/", OPENAI_API_KEY="k")

    assert (away.find("gpt-4.1", "a").price, away.find("mine", "a").price) == (None, Price(1, 2))
    assert away.providers["openai"] == Provider(
        "openai",
        base_url="http://gpu:1/v1",
        base_url_variable="OPENAI_BASE_URL",
        key="k",
        key_variable="OPENAI_API_KEY",
        models={"": ModelEntry(), "mine": ModelEntry(price=Price(1, 2))},
    )
    assert home.find("gpt-4.1", "a").price == Price(2, 8)


KEY_MISSING = (
    "OFFICE_KEY is not set: set it to the key (to any word if it wants none) of the provider 'office'"
)


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({}, KEY_MISSING),
        ({"OFFICE_KEY": " "}, KEY_MISSING),
        (
            {"OFFICE_KEY": "s3cr\u00e9t", "OFFICE_SIGN": "s"},
            KEY_MISSING.replace("not set", "no printable ASCII"),
        ),
        ({"OFFICE_KEY": "k"}, "OFFICE_SIGN is not set: set it to the header X-Sign of the provider 'office'"),
        (VARIABLES, None),
    ],
)
def test_variables_that_are_missing_are_known(
    tmp_path: Path, variables: Mapping[str, str], missing: str | None
) -> None:
    """They are not an error yet: the provider may never be called. No text shows a variable's value."""
    catalogue = load(tmp_path, OFFICE, **variables)
    assert catalogue.missing.get("office") == missing
    if not missing:
        assert catalogue.providers["office"].headers == {"X-Team": "search", "X-Sign": "signed"}
    assert "s3cret" not in repr(catalogue)
    assert "signed" not in repr(catalogue)


def test_the_key_of_a_provider_that_ships_is_asked_for_plainly(tmp_path: Path) -> None:
    """For a server of the user's own in its place the line says that it may need none."""
    asked = "OPENAI_API_KEY is not set: set it to the key"
    assert load(tmp_path).missing["openai"] == f"{asked} of the provider 'openai'"
    elsewhere = load(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:1/v1").missing["openai"]
    assert elsewhere == f"{asked} (to any word if it wants none) of the provider 'openai'"


PROVIDER = '[providers.p]\nbase_url = "http://p"\n'
OPENAI_X = "[models.'openai/x']\n"
NO_FIELD = "there is no such field; did you mean"

WRONG = [
    ("a =", "no TOML: Invalid value (at end of document)"),
    ("[provider.p]", f"provider: {NO_FIELD} providers?"),
    ("[providers.p]\nbase_ulr = 'x'", f"providers.p.base_ulr: {NO_FIELD} base_url?"),
    ("[providers.p]\nkind = 'chat'", "providers.p: base_url is missing; give an address"),
    ("[providers.p]\nbase_url = 'p/s3cret'", "providers.p.base_url: give an address, such as"),
    ("[providers.p]\nbase_url = 'http://a:s3/cret@p'", "providers.p.base_url: give an address, such as"),
    ("[models]\n'openai/x' = 1", "models.openai/x: give a table"),
    (OPENAI_X + "price = 1", "models.openai/x.price: give a table"),
    ("providers = 1", "providers: give a table"),
    ("[models.'opnai/x']\nwindow = 1", "models.opnai/x: no provider is called 'opnai'; did you mean openai?"),
    (OPENAI_X + "price = {input = 1}", "models.openai/x.price.output: Field required"),
    (OPENAI_X + "price = {input = nan, output = 1}", "models.openai/x.price.input: Input should be"),
    (OPENAI_X + "price = {inptu = 1, output = 1}", f"price.inptu: {NO_FIELD}"),
]
WRONG_IN_PROVIDER = [
    ("kind = 'caht'", 'kind: give "chat", "responses", or where your own is'),
    ("concurrency = 0", "concurrency: Input should be greater than or equal to 1"),
    ("output = ['s3cret']", "output.0: Input should be 'json_schema', 'json_object'"),
    ('headers = {"X\\n" = "s3cret"}', "headers: "),
    ("settings = {temprature = 1}", f"settings.temprature: {NO_FIELD} temper"),
    ("settings = {temperature = 3}", "settings.temperature: Input should be less than"),
    ("settings = {first_token = 's3cret'}", "settings.first_token: give seconds, such as 60"),
    (
        'settings = {extra_headers = {"X Team" = "s3cret"}}',
        "settings.extra_headers: 'X Team' is no name of a header",
    ),
    ("settings = 's3cret'", "settings: give a table, such as { name = 1 }"),
]


@pytest.mark.parametrize(
    ("text", "told"),
    [*WRONG, *((PROVIDER + text, f"providers.p.{told}") for text, told in WRONG_IN_PROVIDER)],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    """It has the position in the file and the expected form, without the value."""
    with pytest.raises(ModelsFileError) as caught:
        load(tmp_path, text)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/models.toml: ")
    assert told in line
    assert "s3cret" not in line


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    """And an address in a variable has to be valid."""
    with pytest.raises(
        ModelsFileError, match=r"cannot be read .FileNotFoundError.: check EVERLOOP_MODELS_FILE"
    ):
        Catalogue.load(tmp_path / "none.toml", None, {})
    with pytest.raises(ModelsFileError, match=r"OPENAI_BASE_URL: give an address, such as http") as caught:
        Catalogue.load(None, None, {"OPENAI_BASE_URL": "p:80/s3cret"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "input_price"),
    [
        ("gpt-4.1-mini", 0.4),
        ("gpt-4.1-mini-2025-04-14", 0.4),
        ("gpt-4.1@eu", 2),
        ("gpt-4o:batch", 2.5),
        ("gpt-4o-2024-05-13", 5),
        ("gpt-4.15", None),
        ("gpt-4.1x", None),
        ("gpt-6", None),
        ("ollama/gpt-4.1", None),
    ],
)
def test_a_version_costs_what_its_model_costs(model: str, input_price: float | None) -> None:
    """A name that is only similar gets no price."""
    price = Catalogue.load(None, None, {}).find(model, "a").price
    assert (price and price.input) == input_price


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(2, 8), 2 * 0.9 + 8 * 0.1),
        (Price(2, 8, cached_input=0.5), 2 * 0.5 + 0.5 * 0.4 + 8 * 0.1),
        (Price(2, 8, cached_input=0, cache_write=4), 2 * 0.2 + 4 * 0.3 + 8 * 0.1),
        (Price(0, 0), 0),
    ],
)
def test_cached_tokens_have_prices_of_their_own(price: Price, cost: float) -> None:
    """Without a price of their own they cost as much as others."""
    used = Usage(
        input_tokens=900_000, output_tokens=100_000, cached_tokens=400_000, cache_write_tokens=300_000
    )
    assert price.cost(used) == pytest.approx(cost)
