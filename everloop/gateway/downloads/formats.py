"""The media type and file name of a served part. Pure."""

import asyncio
import csv
import io
import mimetypes
import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Literal, cast
from urllib.parse import quote

from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from everloop.workflows.contract.artifacts import ArtifactPart, PartKind

CSV = "text/csv"
JSON_LINES = "application/x-ndjson"

Format = Literal["stored", "csv"]
"""The stored bytes (a dataset: JSON lines), or a dataset as CSV."""

_MEDIA_TYPES: dict[PartKind, str] = {
    "text": "text/plain",
    "file": "application/octet-stream",
    "data": "application/json",
    "rows": JSON_LINES,
}
_HEADER_SAFE = re.compile(
    r'[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(\s*;[ !"#$%&\'*+./0-9;=A-Z^_`a-z|~-]*)?'
)
_EXTENSIONS = mimetypes.MimeTypes()
"""Python's own table: that of a machine could differ between machines."""

_MORE_EXTENSIONS = {JSON_LINES: ".jsonl", CSV: ".csv", "application/json": ".json", "text/markdown": ".md"}
_ROWS_EXTENSION = re.compile(r"\.(jsonl|ndjson|json|csv)$", re.IGNORECASE)
_MAX_NAME = 200


@dataclass(frozen=True)
class Served:
    """Headers of a part's content."""

    media_type: str
    filename: str

    @property
    def disposition(self) -> str:
        """Content-Disposition: a download, never a page to run (RFC 6266, RFC 8187)."""
        plain = re.sub(r"[^A-Za-z0-9 ._()+,=@~-]", "_", self.filename)
        disposition = f'attachment; filename="{plain}"'
        if plain == self.filename:
            return disposition
        return f"{disposition}; filename*=UTF-8''{quote(self.filename, safe='')}"


def choose_format(part: ArtifactPart, requested: str | None, accept: str) -> Format:
    """Return the format that the query names, or that the client prefers.

    Raises:
        InvalidParamsError: the part has no such format.
    """
    if part.kind != "rows":
        if requested is None:
            return "stored"
        raise InvalidParamsError("format is for datasets only; leave it out")
    match requested:
        case "jsonl":
            return "stored"
        case "csv":
            return "csv"
        case None:
            return "csv" if _quality(accept, CSV) > _quality(accept, JSON_LINES) else "stored"
        case _:
            raise InvalidParamsError("format is neither jsonl nor csv; name one of them")


def served(artifact_id: str, part: ArtifactPart, format_: Format) -> Served:
    """Return media type and file name; a part without a name is named after its artifact."""
    media_type = CSV if format_ == "csv" else _media_type(part)
    essence = media_type.partition(";")[0].strip().lower()
    name = _clean(part.filename) or _named_after(artifact_id, part.index, essence)
    if format_ == "csv":
        name = f"{_ROWS_EXTENSION.sub('', name)}.csv"
    return Served(_with_charset(media_type, part), name)


def _media_type(part: ArtifactPart) -> str:
    """Return a media type that is valid in a header: the artifact's writer may have chosen any text."""
    return part.media_type if _HEADER_SAFE.fullmatch(part.media_type) else _MEDIA_TYPES[part.kind]


def _with_charset(media_type: str, part: ArtifactPart) -> str:
    """Add the charset where it is certain: a file may be text in any encoding."""
    is_ours = part.kind in {"text", "rows"} and media_type.startswith("text/")
    return f"{media_type}; charset=utf-8" if is_ours and "charset=" not in media_type.lower() else media_type


def _clean(filename: str) -> str:
    """Return the last segment of a name without characters that could disguise it."""
    segment = re.split(r"[/\\]", filename)[-1]
    printable = "".join(c for c in segment if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"})
    return printable[:_MAX_NAME] if printable.strip(" .") else ""


def _named_after(artifact_id: str, index: int, essence: str) -> str:
    extension = _MORE_EXTENSIONS.get(essence) or _EXTENSIONS.guess_extension(essence) or ".bin"
    stem = _clean(artifact_id) or "artifact"
    if PurePosixPath(stem).suffix == extension:
        return stem
    return f"{stem}-{index}{extension}" if index else f"{stem}{extension}"


def _quality(accept: str, media_type: str) -> float:
    """Return the quality of a media type, by the most specific range that names it (RFC 9110 §12.5.1)."""
    kind = media_type.partition("/")[0]
    qualities = {name: quality for name, quality in map(_read_range, accept.split(",")) if name}
    for name in (media_type, f"{kind}/*", "*/*"):
        if name in qualities:
            return qualities[name]
    return 0.0


def _read_range(written: str) -> tuple[str, float]:
    name, *parameters = (word.strip().lower() for word in written.split(";"))
    for parameter in parameters:
        if re.fullmatch(r"q=(0(\.\d{0,3})?|1(\.0{0,3})?)", parameter):
            return name, float(parameter[2:])
    return name, 1.0


# Datasets as CSV, row by row.
#
# Source: RFC 4180 (comma, double quotes, CRLF, a header line). Spreadsheets take a text that begins with = +
# - or @ for a formula, which can send data away; unless told otherwise an apostrophe stands before such a
# text (OWASP, CSV injection).

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

Rows = Callable[[], AsyncIterator[bytes]]
"""Starts reading the JSON lines of a dataset; called once, or twice to collect the columns first."""


async def csv_pieces(
    rows: Rows, schema: Mapping[str, JsonValue] | None, *, keeps_formulas: bool = False
) -> AsyncGenerator[bytes]:
    """Yield a dataset as CSV, in pieces about as large as those that are read.

    Columns are the properties of the schema in their order, then all other keys in the order of first
    appearance, so that nothing is left out. Cells: text unchanged, other values as JSON, null empty.
    `keeps_formulas`: do not escape text that a spreadsheet would take for a formula.
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
        columns.update(await asyncio.to_thread(dict.fromkeys, chain.from_iterable(_rows(block))))
    return list(columns)


async def _blocks(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield complete lines, about as many at a time as a piece has."""
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


def _to_csv(block: bytes, columns: Sequence[str], cell: Callable[[JsonValue], str]) -> bytes:
    return _write([cell(row.get(column)) for column in columns] for row in _rows(block))


def _write(lines: Iterable[Sequence[str]]) -> bytes:
    written = io.StringIO(newline="")
    csv.writer(written).writerows(lines)
    return written.getvalue().encode()


def _harmless(value: JsonValue) -> str:
    """Return a cell that no spreadsheet evaluates; numbers stay as they are, negative ones too."""
    cell = _cell(value)
    return f"'{cell}" if isinstance(value, str) and cell.startswith(_FORMULAS) else cell


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()
