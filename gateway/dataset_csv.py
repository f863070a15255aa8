"""Datasets as CSV, row by row.

Source: RFC 4180 (comma, double quotes, CRLF, a header line). Spreadsheets take a text that begins with = + -
or @ for a formula, which can send data away; unless told otherwise an apostrophe stands before such a text
(OWASP, CSV injection).
"""

import asyncio
import csv
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

Rows = Callable[[], AsyncIterator[bytes]]
"""Begins to read the JSON lines of a dataset; called once, or twice to learn the columns first."""


async def csv_pieces(
    rows: Rows, schema: Mapping[str, JsonValue] | None, *, keeps_formulas: bool = False
) -> AsyncGenerator[bytes]:
    """Yield a dataset as CSV, in pieces about as large as those that are read.

    Columns are the properties of the schema in their order, then all other keys in the order in which they
    first appear, so that nothing is left out. Cells: a text as it is, anything else as JSON, null as nothing.
    `keeps_formulas`: also a text that a spreadsheet would take for a formula.
    """
    columns = await _columns(rows, schema or {})
    cell = _cell if keeps_formulas else _harmless
    head = _write([list(map(cell, columns))]) if columns else b""
    async for block in _blocks(rows()):
        yield head + await asyncio.to_thread(_to_csv, block, columns, cell)
        head = b""
    if head:
        yield head


async def _columns(rows: Rows, schema: Mapping[str, JsonValue]) -> list[str]:
    properties = schema.get("properties")
    columns = dict.fromkeys(properties if isinstance(properties, dict) else ())
    if columns and schema.get("additionalProperties") is False and "patternProperties" not in schema:
        return list(columns)
    async for block in _blocks(rows()):
        columns.update(await asyncio.to_thread(_keys, block))
    return list(columns)


async def _blocks(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield whole lines, about as many at once as there are in a piece."""
    rest: list[bytes] = []
    async with aclosing(cast("AsyncGenerator[bytes]", pieces)) as open_pieces:
        async for piece in open_pieces:
            head, newline, tail = piece.rpartition(b"\n")
            if newline:
                yield b"".join([*rest, head])
                rest = []
            rest.append(tail)
    if last := b"".join(rest):
        yield last


def _rows(block: bytes) -> Iterable[dict[str, JsonValue]]:
    return (from_json(line) for line in block.split(b"\n") if line.strip())


def _keys(block: bytes) -> dict[str, None]:
    return dict.fromkeys(key for row in _rows(block) for key in row)


def _to_csv(block: bytes, columns: Sequence[str], cell: Callable[[JsonValue], str]) -> bytes:
    return _write([cell(row.get(column)) for column in columns] for row in _rows(block))


def _write(lines: Iterable[Sequence[str]]) -> bytes:
    written = io.StringIO(newline="")
    csv.writer(written).writerows(lines)
    return written.getvalue().encode()


def _harmless(value: JsonValue) -> str:
    """Return a cell that no spreadsheet calculates; numbers are what they are, the negative ones too."""
    cell = _cell(value)
    return f"'{cell}" if isinstance(value, str) and cell.startswith(_FORMULAS) else cell


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()
