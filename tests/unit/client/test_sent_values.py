"""Input of clients that is not JSON, or not text, is refused like any wrong argument."""

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from everloop.client import Client, InvalidError, Part

NO_JSON: Mapping[str, Any] = {
    "a decimal": {"x": Decimal(1)},
    "no number": [math.nan],
    "infinite": {"x": {"y": -math.inf}},
    "keys of numbers": {0: "a"},
    "keys within": {"a": [{("b", 1): 2}]},
    "bytes": {"x": b"a"},
    "a date": date(2026, 1, 1),
    "a set": {"x": {1}},
    "half a character": {"x": "\ud800"},
    "without an end": [],
}
NO_JSON["without an end"].append(NO_JSON["without an end"])


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
async def test_data_that_are_no_json_are_refused(value: Any) -> None:  # noqa: ANN401 -- whatever users give
    """With a `ClientError` that names the problem, before anything is sent."""
    async with Client("http://127.0.0.1:9") as client:
        for send in (
            lambda: client.send("hi", data=value),
            lambda: client.send(Part(data=value)),
            lambda: client.answer("task", value),
            lambda: client.send("hi", metadata={"x": value}),
        ):
            with pytest.raises(InvalidError, match=r"JSON"):
                await send()


@pytest.mark.parametrize("part", [Part(text="\ud800"), Part(text="hi", filename="\ud800"), "\udcff"])
async def test_texts_that_are_none_are_refused(part: Part | str) -> None:
    """A shell with another encoding passes such texts."""
    async with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidError, match="half a character"):
            await client.send(part)


async def test_values_are_given_as_data() -> None:
    """The error for a dict in place of a text says so."""
    content: Any = {}
    async with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidError, match=r"texts and parts, and no dict; give it as data="):
            await client.send(content)


async def test_bodies_of_the_extension_are_checked_too() -> None:
    """With our own errors instead of those of httpx."""
    async with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidError, match="cannot be sent as JSON"):
            await client._connection.ask("POST", "http://127.0.0.1:9/", {"x": math.nan})
