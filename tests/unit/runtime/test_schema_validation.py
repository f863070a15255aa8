"""Foreign JSON schemas: their violations, and protection of our processes from them."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import JsonValue

from everloop.runtime import schema_validation
from everloop.runtime.schema_validation import (
    AT_ONCE,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    MAX_VALUE_DEPTH,
    SchemaTooSlowError,
    SchemaUnfitError,
    find_schema_violations,
    find_schema_violations_soon,
    problem_of_schema,
)
from tests.support.doubling import doubling, small_budget

Schema = dict[str, JsonValue]

NUMBERED: Schema = {"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False}

FITTING: list[tuple[Schema, JsonValue]] = [
    ({"pattern": "b"}, "abc"),
    ({"pattern": r"^[\w\p{L}]+$"}, "Éa"),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}, 2),
    ({"format": "email", "$schema": "http://json-schema.org/draft-07/schema#"}, "no address"),
    (NUMBERED, {"n": 1}),
    ({"patternProperties": {"^n": True}, "additionalProperties": {"type": "string"}}, {"n": 1, "m": "x"}),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}),
]


ELSEWHERE: JsonValue = {"$ref": "https://schemas.example/city.json"}
DATA: list[Schema] = [
    *({keyword: ELSEWHERE} for keyword in ("default", "const")),
    *({keyword: [ELSEWHERE, {"deeper": [ELSEWHERE]}]} for keyword in ("examples", "enum")),
    {"properties": {"city": {"type": "object", "default": ELSEWHERE}}},
]
REFERENCES: list[Schema] = [
    *({"properties": {name: ELSEWHERE}} for name in ("default", "examples", "const", "enum", "properties")),
    {"$defs": {"default": {"items": ELSEWHERE}}, "type": "object"},
    {"properties": {"properties": {"properties": {"default": ELSEWHERE}}}},
]


@pytest.mark.parametrize("schema", DATA, ids=str)
def test_what_a_schema_holds_as_data_is_no_reference(schema: Schema) -> None:
    """An example of a document with a reference is a value, and nothing is fetched for it."""
    assert not problem_of_schema(schema)


@pytest.mark.parametrize("schema", REFERENCES, ids=str)
def test_a_property_may_be_called_as_a_keyword(schema: Schema) -> None:
    """The value under its name is a schema, and a reference to another place is not followed."""
    assert "refers to 'https://schemas.example/city.json'" in problem_of_schema(schema)


@pytest.mark.parametrize(("schema", "value"), FITTING)
def test_what_fits_is_no_violation(schema: Schema, value: JsonValue) -> None:
    """Patterns match anywhere in a text; formats are not checked."""
    assert find_schema_violations(schema, [value]) == []


WRONG: list[tuple[Schema, JsonValue, str]] = [
    ({"pattern": "^b"}, "abc", '{"pattern": "^b"} at $'),
    (NUMBERED, {"n": "s3cret"}, '{"type": "integer"} at $.n'),
    (NUMBERED, {"m": 1}, '{"additionalProperties": false} at $'),
    ({"patternProperties": {"^n": True}, "additionalProperties": {"type": "string"}}, {"m": 1}, '"string"'),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"b": 1}, '"unevaluatedProp'),
]


@pytest.mark.parametrize(("schema", "value", "words"), WRONG)
def test_what_does_not_fit_is_told_without_the_data(schema: Schema, value: JsonValue, words: str) -> None:
    """Rule and place are named; only the message repeats the value."""
    (violation,) = find_schema_violations(schema, [value])

    told = f"{violation.rule} at {violation.json_path}"
    assert words in told
    assert "s3cret" not in told


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
    "additional": ({"patternProperties": {ENDLESS: True}, "additionalProperties": False}, {NEARLY: 1}, False),
    "unevaluated": (
        {"patternProperties": {ENDLESS: True}, "unevaluatedProperties": False},
        {NEARLY: 1},
        False,
    ),
    "looks back": ({"pattern": r"^(a+)+\1$"}, NEARLY, False),
    "endless": ({"$ref": "#"}, 1, True),
}


@pytest.mark.parametrize(("schema", "value", "fits"), SLOW.values(), ids=SLOW.keys())
def test_no_pattern_takes_for_ever(schema: Schema, value: JsonValue, *, fits: bool) -> None:
    """Including patterns that take Python's `re` exponential time."""
    assert (find_schema_violations(schema, [value]) == []) is fits


def _nested(depth: int, name: str = "") -> JsonValue:
    value: JsonValue = "x"
    for _ in range(depth):
        value = {name: value} if name else [value]
    return value


EXPONENTIAL: dict[str, tuple[Schema, JsonValue]] = {
    "references": (doubling(40, "string"), "x"),
    "violations": (doubling(24, "string"), 1),
}


@pytest.mark.parametrize(("schema", "value"), EXPONENTIAL.values(), ids=EXPONENTIAL.keys())
def test_a_check_ends_with_its_budget(schema: Schema, value: JsonValue) -> None:
    """Its process is killed; the next check has another one."""
    assert not problem_of_schema(schema)

    with pytest.raises(SchemaTooSlowError, match="write it simpler"):
        find_schema_violations(schema, [value])

    assert find_schema_violations({"type": "string"}, [1])


@pytest.mark.usefixtures(small_budget.__name__)
async def test_slow_checks_keep_nobody_else_waiting() -> None:
    """They run neither in this thread nor in the thread pool of the process."""
    loop, here = asyncio.get_running_loop(), threading.get_ident()
    checks = [
        asyncio.create_task(find_schema_violations_soon(doubling(40, "string"), ["x"]))
        for _ in range(2 * AT_ONCE)
    ]

    for _ in range(10):  # any number of other calls finish before the first check
        assert await asyncio.to_thread(threading.get_ident) != here
    assert not any(check.done() for check in checks)

    outcomes = await asyncio.gather(*checks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SchemaTooSlowError}
    assert loop.is_running()


UNFIT: dict[str, tuple[Schema, str]] = {
    "dangling": ({"$ref": "#/$defs/nowhere"}, "'/$defs/nowhere' does not exist"),
    "no schema": ({"type": "nothing"}, "nothing"),
    "no pattern": ({"pattern": "(unclosed"}, "(unclosed"),
    "too large a pattern": ({"pattern": r"(\w{999}){999}"}, "999"),
    "elsewhere": ({"items": [{"$ref": "http://127.0.0.1:9/x"}]}, "refers to 'http://127.0.0.1:9/x'"),
    "a file": ({"$ref": "file:///etc/passwd"}, "refers to"),
    "too deep": ({"not": _nested(MAX_SCHEMA_DEPTH, "not")}, f"deeper than {MAX_SCHEMA_DEPTH} levels"),
    "too large": ({"description": "x" * MAX_SCHEMA_BYTES}, f"larger than {MAX_SCHEMA_BYTES} bytes"),
}


@pytest.mark.parametrize(("schema", "words"), UNFIT.values(), ids=UNFIT.keys())
def test_a_schema_that_is_none_is_told_so(schema: Schema, words: str) -> None:
    """When it is accepted, and when it is used."""
    assert words in problem_of_schema(schema)
    with pytest.raises(SchemaUnfitError):
        find_schema_violations(schema, ["text"])


@pytest.mark.parametrize("depth", [MAX_VALUE_DEPTH + 1, 100_000])
def test_values_that_are_too_deep_are_not_checked(depth: int) -> None:
    """They would crash the checking process."""
    with pytest.raises(SchemaUnfitError, match="nested deeper"):
        find_schema_violations({"items": {"$ref": "#"}}, [_nested(depth)])


async def test_no_schema_is_fetched() -> None:
    """A reference out of the schema resolves to nothing, by any keyword."""
    visitors: list[object] = []
    server = await asyncio.start_server(lambda _, writer: visitors.append(writer.close()), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        url = f"http://{host}:{port}/schema.json"
        schemas: list[Mapping[str, JsonValue]] = [
            {"$id": url, "$ref": "other.json"},
            {"$schema": url},
            {"$id": url, "properties": {"a": {"$schema": url, "$id": "b"}}},
            {"$ref": url},
        ]
        for schema in schemas:
            with suppress(SchemaUnfitError):
                await find_schema_violations_soon(schema, [{"a": 1}])

    assert visitors == []


def test_the_process_is_told_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is empty."""
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    schema_validation._PROCESSES.close()
    find_schema_violations({"type": "string"}, ["a"])

    (process,) = schema_validation._PROCESSES._idle
    assert b"s3cret" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_values_are_checked_together() -> None:
    """Each violation has the number of its value; at most the requested number is returned."""
    schema: Schema = {"items": {"type": "integer"}}
    found = find_schema_violations(schema, [[1], ["a", "b"], [None]], most=3)

    assert [(each.value, each.path) for each in found] == [(1, (0,)), (1, (1,)), (2, (0,))]
    assert len(find_schema_violations(schema, [list[JsonValue](["a"] * 10)], most=3)) == 3
