"""Rows of a dataset: JSON objects, one a line, each checked against the schema of the dataset."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json

from everloop.runtime.foreign_schemas import SchemaUnfitError, find_misfits, problem_of_schema
from everloop.stores.artifact_errors import RowInvalidError, RowSchemaError
from everloop.workflows.contract.part_rules import text_flaw

_MAX_REASON = 200
_TOGETHER = 1_000
"""Rows that are checked at once."""


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
        if problem := problem_of_schema(schema):
            raise RowSchemaError(problem[:_MAX_REASON])


def count_rows(content: bytes, schema: Mapping[str, JsonValue] | None) -> int:
    """Return how many rows the content holds; each is an object and fits the schema.

    Models write both schemas and rows: they are checked as those of strangers are.

    Raises:
        RowInvalidError: a row is not so, or the last line has no end.
        RowSchemaError: rows cannot be checked against the schema.
    """
    lines = content.split(b"\n")
    if lines.pop():
        raise RowInvalidError(len(lines), "its line has no end")
    for start in range(0, len(lines), _TOGETHER):
        rows = [
            _read_row(start + number, line) for number, line in enumerate(lines[start : start + _TOGETHER])
        ]
        if schema is not None:
            _check_rows(rows, schema, start)
    return len(lines)


def _read_row(number: int, line: bytes) -> dict[str, JsonValue]:
    try:
        row: JsonValue = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise RowInvalidError(number, "it is no JSON") from error
    if not isinstance(row, dict):
        raise RowInvalidError(number, "it is no JSON object")
    return row


def _check_rows(rows: list[dict[str, JsonValue]], schema: Mapping[str, JsonValue], first: int) -> None:
    try:
        misfits = find_misfits(schema, rows)
    except SchemaUnfitError as error:
        raise RowSchemaError(str(error)[:_MAX_REASON]) from error
    for misfit in misfits:
        raise RowInvalidError(first + misfit.value, f"{misfit.json_path}: {misfit.message[:_MAX_REASON]}")


def _encode(number: int, row: Mapping[str, JsonValue]) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise RowInvalidError(number, "it is no JSON") from error
