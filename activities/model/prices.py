"""What models cost."""

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from everloop.workflows.contract.messages import Usage

_TOKENS = 1_000_000
_BOUNDARY = re.compile(r"[-@:]")
_EXPECTED = 'expected US dollars per million tokens, such as {"my-model": {"input": 0.4, "output": 1.6}}'


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)

    def cost(self, usage: Usage) -> float:
        """Return what these tokens cost in US dollars."""
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / _TOKENS


class Prices:
    """A price list: the one below, and what is added to it or stands in its place.

    A name that is not listed has the price of the longest one that it begins with, up to a "-", "@" or ":":
    `gpt-4.1-mini-2025-04-14` that of `gpt-4.1-mini`, `gpt-4.15` none.
    """

    def __init__(self, others: Mapping[str, Price] | None = None) -> None:
        self._prices = {**_LISTED, **(others or {})}

    def find(self, model: str) -> Price | None:
        """Return the price of a model, None if it is not known."""
        names = (name for name in self._prices if _is_version(model, name))
        best = max(names, key=len, default=None)
        return None if best is None else self._prices[best]

    def add_cost(self, model: str, usage: Usage) -> Usage:
        """Return the usage with its cost, which is 0 where no price is known."""
        price = self.find(model)
        return usage.model_copy(update={"cost": price.cost(usage)}) if price else usage


def read_prices(text: str) -> dict[str, Price]:
    """Return the prices in a JSON text, by model.

    Raises:
        ValueError: it is no such text; the message is one line and shows none of its values.
    """
    try:
        return _PRICES.validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = "".join(f"{word}: " for word in problem["loc"])
        raise ValueError(f"{place}{problem['msg']}; {_EXPECTED}") from None


def _is_version(model: str, name: str) -> bool:
    return model == name or (model.startswith(name) and bool(_BOUNDARY.match(model, len(name))))


def _price(input_: float, output: float) -> Price:
    return Price(input=input_, output=output)


_PRICES: TypeAdapter[dict[str, Price]] = TypeAdapter(
    dict[str, Price], config=ConfigDict(hide_input_in_errors=True)
)

_LISTED: Mapping[str, Price] = {
    "gpt-5.2": _price(1.75, 14),
    "gpt-5.2-pro": _price(21, 168),
    "gpt-5.1": _price(1.25, 10),
    "gpt-5.1-codex-mini": _price(0.25, 2),
    "gpt-5": _price(1.25, 10),
    "gpt-5-pro": _price(15, 120),
    "gpt-5-mini": _price(0.25, 2),
    "gpt-5-nano": _price(0.05, 0.4),
    "gpt-4.1": _price(2, 8),
    "gpt-4.1-mini": _price(0.4, 1.6),
    "gpt-4.1-nano": _price(0.1, 0.4),
    "gpt-4o": _price(2.5, 10),
    "gpt-4o-2024-05-13": _price(5, 15),
    "gpt-4o-mini": _price(0.15, 0.6),
    "gpt-4-turbo": _price(10, 30),
    "gpt-4-1106-preview": _price(10, 30),
    "gpt-4-0125-preview": _price(10, 30),
    "gpt-4": _price(30, 60),
    "gpt-4-32k": _price(60, 120),
    "gpt-3.5-turbo": _price(0.5, 1.5),
    "gpt-3.5-turbo-1106": _price(1, 2),
    "gpt-3.5-turbo-16k": _price(3, 4),
    "o4-mini": _price(1.1, 4.4),
    "o4-mini-deep-research": _price(2, 8),
    "o3": _price(2, 8),
    "o3-pro": _price(20, 80),
    "o3-mini": _price(1.1, 4.4),
    "o3-deep-research": _price(10, 40),
    "o1": _price(15, 60),
    "o1-pro": _price(150, 600),
    "o1-mini": _price(1.1, 4.4),
}
"""OpenAI's list prices for text, without its discounts for cached input and batches. They change: set
EVERLOOP_PRICES where they have."""

LIST_PRICES = Prices()
"""The list as it stands here."""
