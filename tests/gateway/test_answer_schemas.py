"""JSON schemas of questions: what they refuse, and that none of them can hold up the gateway."""

import asyncio

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from gateway.answer_schemas import MAX_MATCHED, find_misfit

Schema = dict[str, JsonValue]

NUMBERED: Schema = {"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False}

FITTING: list[tuple[Schema, JsonValue]] = [
    ({"pattern": "b"}, "abc"),
    ({"pattern": r"^\w+$"}, "Éa"),
    ({"pattern": "b"}, 5),
    ({"pattern": "b"}, "a" * (MAX_MATCHED + 1)),
    (NUMBERED, {"n": 1}),
    (NUMBERED, "text"),
    ({"patternProperties": {"^n": True}, "additionalProperties": {"type": "string"}}, {"n": 1, "m": "x"}),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}),
    ({"properties": {"$schema": {"const": "x"}}}, {"$schema": "x"}),
]


@pytest.mark.parametrize(("schema", "value"), FITTING)
def test_what_fits_is_no_misfit(schema: Schema, value: JsonValue) -> None:
    """Patterns are found anywhere in a text; a text that is too long to be matched fits."""
    assert find_misfit(schema, value) is None


WRONG: list[tuple[Schema, JsonValue, str]] = [
    ({"pattern": "^b"}, "abc", '{"pattern": "^b"} at $'),
    ({"items": {"pattern": "^b$"}}, ["b", "b\n"], '{"pattern": "^b$"} at $[1]'),
    (NUMBERED, {"n": "s3cret"}, '{"type": "integer"} at $.n'),
    (NUMBERED, {"m": 1}, '{"additionalProperties": false} at $'),
    ({"patternProperties": {"^n": True}, "additionalProperties": {"type": "string"}}, {"m": 1}, '"string"'),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"b": 1}, '"unevaluatedProp'),
    ({"properties": {"$schema": {"const": "x"}}}, {"$schema": "y"}, '{"const": "x"} at $'),
]


@pytest.mark.parametrize(("schema", "value", "words"), WRONG)
def test_what_does_not_fit_is_told_without_the_data(schema: Schema, value: JsonValue, words: str) -> None:
    """Rule and place are named."""
    misfit = find_misfit(schema, value)

    assert misfit is not None
    assert words in misfit
    assert "s3cret" not in misfit


ENDLESS = "^(a+)+$"
NEARLY = "a" * 60 + "!"

SLOW: dict[str, tuple[Schema, JsonValue, bool]] = {
    "pattern": ({"pattern": ENDLESS}, NEARLY, False),
    "another dialect": (
        {"allOf": [{"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": ENDLESS}]},
        NEARLY,
        False,
    ),
    "properties": ({"patternProperties": {ENDLESS: False}}, {NEARLY: 1}, True),
    "additional": (
        {"patternProperties": {ENDLESS: True}, "additionalProperties": False},
        {NEARLY: 1},
        False,
    ),
    "unevaluated": (
        {"patternProperties": {ENDLESS: True}, "unevaluatedProperties": False},
        {NEARLY: 1},
        True,
    ),
    "looks back": ({"pattern": r"^(a+)+\1$"}, NEARLY, True),
    "names look back": (
        {"patternProperties": {r"^(a+)+\1$": False}, "additionalProperties": False},
        {NEARLY: 1},
        True,
    ),
}


@pytest.mark.parametrize(("schema", "value", "fits"), SLOW.values(), ids=SLOW.keys())
def test_no_pattern_takes_for_ever(schema: Schema, value: JsonValue, *, fits: bool) -> None:
    """A model may have written it, and no other thread of the gateway runs while it is matched."""
    assert (find_misfit(schema, value) is None) is fits


UNCHECKED: dict[str, Schema] = {
    "dangling": {"$ref": "#/$defs/nowhere"},
    "endless": {"$ref": "#"},
    "no schema": {"type": "nothing"},
    "no pattern": {"pattern": "(unclosed"},
    "looks ahead": {"pattern": "^(?=x)"},
    "too large": {"pattern": r"\w{999}"},
}


@pytest.mark.parametrize("schema", UNCHECKED.values(), ids=UNCHECKED.keys())
def test_a_schema_that_cannot_be_checked_checks_nothing(schema: Schema) -> None:
    """A task is not stuck with a question that nobody can answer; the log says so."""
    with capture_logs() as logs:
        assert find_misfit(schema, "text") is None

    assert [line["log_level"] for line in logs] == ["warning"]


async def test_no_schema_is_fetched() -> None:
    """A reference that leads out of the schema leads nowhere."""
    visitors: list[object] = []
    server = await asyncio.start_server(lambda _, writer: visitors.append(writer.close()), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        await asyncio.to_thread(find_misfit, {"$ref": f"http://{host}:{port}/schema.json"}, {})

    assert visitors == []
