"""Rows of a dataset: JSON objects, one a line, each checked against the schema of the dataset."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import cast

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import (
    Draft202012Validator,
    extend,  # pyright: ignore[reportUnknownVariableType] -- its stub has no types
)
from pydantic import JsonValue
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema, from_json
from referencing import Registry
from referencing.exceptions import Unresolvable

from stores.artifact_errors import RowInvalidError, RowSchemaError
from workflows.contract.part_rules import text_flaw

_MAX_REASON = 200
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""

_PLAIN = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose value is no schema."""


def encode_rows(rows: Iterable[Mapping[str, JsonValue]]) -> bytes:
    """Return rows as JSON lines.

    Raises:
        RowInvalidError: a row is no JSON, for example because it holds NaN.
    """
    return b"".join(_encode(number, row) for number, row in enumerate(rows))


async def decode_rows(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, JsonValue]]:
    """Yield the rows of stored content, which may be cut anywhere."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield cast("dict[str, JsonValue]", json.loads(line))


def check_schema(schema: Mapping[str, JsonValue] | None) -> None:
    """See that rows can be checked against a schema.

    Raises:
        RowSchemaError: they cannot.
    """
    if schema is not None:
        text = json.dumps(schema, ensure_ascii=False)
        if flaw := text_flaw(text, len(text)):
            raise RowSchemaError(flaw)
        _validator(json.dumps(schema))


def count_rows(content: bytes, schema: Mapping[str, JsonValue] | None) -> int:
    """Return how many rows the content holds; each is an object and fits the schema.

    Nothing is fetched that the schema refers to, and its patterns are matched in linear time: models write
    both schemas and rows.

    Raises:
        RowInvalidError: a row is not so, or the last line has no end.
        RowSchemaError: rows cannot be checked against the schema.
    """
    validator = None if schema is None else _validator(json.dumps(schema))
    lines = content.split(b"\n")
    if lines.pop():
        raise RowInvalidError(len(lines), "its line has no end")
    for number, line in enumerate(lines):
        _check_row(number, line, validator)
    return len(lines)


def _check_row(number: int, line: bytes, validator: Draft202012Validator | None) -> None:
    try:
        row: JsonValue = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise RowInvalidError(number, "it is no JSON") from error
    if not isinstance(row, dict):
        raise RowInvalidError(number, "it is no JSON object")
    if validator is None:
        return
    try:
        misfit = next(validator.iter_errors(row), None)
    except (Unresolvable, RecursionError) as error:
        raise RowSchemaError("a reference in it leads nowhere") from error
    if isinstance(misfit, ValidationError):
        raise RowInvalidError(number, f"{misfit.json_path}: {misfit.message[:_MAX_REASON]}")


def _encode(number: int, row: Mapping[str, JsonValue]) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise RowInvalidError(number, "it is no JSON") from error


@lru_cache(maxsize=64)
def _validator(written: str) -> Draft202012Validator:
    schema = cast("dict[str, JsonValue]", _in_our_dialect(json.loads(written)))
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RowSchemaError(f"{error.json_path}: {error.message[:_MAX_REASON]}") from error
    except RecursionError as error:
        raise RowSchemaError("it is nested too deeply") from error
    return _LinearValidator(schema, registry=_NOTHING)


def _in_our_dialect(schema: JsonValue) -> JsonValue:
    """Return a schema without `$schema`, by which a part of it would choose another validator than ours."""
    if isinstance(schema, list):
        return [_in_our_dialect(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "patternProperties" in schema:
        raise RowSchemaError("patternProperties is not supported; name each property")
    if isinstance(pattern := schema.get("pattern"), str):
        _compile(pattern)
    return {key: _keyword_value(key, value) for key, value in schema.items() if key != "$schema"}


def _keyword_value(keyword: str, value: JsonValue) -> JsonValue:
    if keyword in _PLAIN:
        return value
    if keyword in _NAMED and isinstance(value, dict):
        return {name: _in_our_dialect(schema) for name, schema in value.items()}
    return _in_our_dialect(value)


@lru_cache(maxsize=64)
def _compile(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError as error:
        reason = f"the pattern {pattern[:_MAX_REASON]!r} cannot be matched in linear time"
        raise RowSchemaError(reason) from error


def _pattern(
    _validator: Draft202012Validator, pattern: JsonValue, text: JsonValue, _schema: Mapping[str, JsonValue]
) -> Iterator[ValidationError]:
    if isinstance(text, str) and not _compile(str(pattern)).isinstance_python(text):
        yield ValidationError(f"does not match the pattern {pattern!r}")


_NOTHING: Registry[JsonValue] = Registry()
"""Where references outside of a schema are looked up; an empty registry fetches nothing."""

_LinearValidator = cast(
    "Callable[..., Draft202012Validator]", extend(Draft202012Validator, {"pattern": _pattern})
)
