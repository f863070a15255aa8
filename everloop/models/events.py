"""Server-sent events (WHATWG HTML §9.2.6) of providers, and the JSON in them.

The SDK's own stream fails at an empty event and at bytes that are not UTF-8, and drops a last event without
a blank line, the field `error`, and JSON in place of events. Its typed chunks cost too much (ADR 46).
"""

import json
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any

import orjson

Object = dict[str, Any]
"""JSON that is not validated yet."""

DONE = "[DONE]"
"""The data of the event after the last one."""

_FIRST_LETTERS = b"deir:"
"""Of data, event, id, retry, and error, and of a comment."""


async def read_events(body: AsyncIterable[bytes]) -> AsyncGenerator[tuple[str, str]]:
    """Yield kind and data of each event, for any line ends and chunk boundaries.

    The kind is `error` for events of that name, and for the field of old servers of llama.cpp, else
    `data`. Comments and other fields are left out, and the last event needs no blank line; a line
    without an end was cut. An object of JSON, under whatever content type, is one event, and then the end.

    Raises:
        ValueError: the body is neither.
    """
    pieces = aiter(body)
    head = await _head(pieces)
    if head.startswith(b"{"):
        yield "data", (head + b"".join([piece async for piece in pieces])).decode(errors="replace")
        yield "data", DONE
        return
    if head[:1] not in _FIRST_LETTERS:
        raise ValueError("neither events nor an object")
    async for event in _events(_lines(_from(head, pieces))):
        yield event


async def _events(lines: AsyncIterable[str]) -> AsyncGenerator[tuple[str, str]]:
    kind, data = "data", list[str]()
    async for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and value:  # an empty one keeps the connection alive
            data.append(value)
        elif name == "event":
            kind = "error" if value == "error" else "data"
        elif name == "error":
            yield name, value
        elif data and not line.strip():
            yield kind, "\n".join(data)
            kind, data = "data", []
    if data:
        yield kind, "\n".join(data)


async def _head(pieces: AsyncIterator[bytes]) -> bytes:
    """Return the beginning of a body, without a byte order mark and white space."""
    head = b""
    async for piece in pieces:
        if head := (head + piece).removeprefix(BOM_UTF8).lstrip():
            break
    return head


async def _from(head: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    yield head
    async for piece in pieces:
        yield piece


async def _lines(body: AsyncIterable[bytes]) -> AsyncGenerator[str]:
    """Yield the lines that have an end: LF, CR LF or CR."""
    begun: list[bytes] = []
    is_behind_cr = False
    async for piece in body:
        parts = (piece.removeprefix(b"\n") if is_behind_cr else piece).splitlines(keepends=True)
        is_behind_cr = piece.endswith(b"\r")
        for part in parts:
            begun.append(part)
            if part.endswith((b"\n", b"\r")):
                yield b"".join(begun).decode(errors="replace").rstrip("\r\n")
                begun.clear()


def read_json(text: str) -> Any:  # noqa: ANN401 -- JSON as it came
    """Parse JSON with orjson, in a third of the time; lone surrogates, and NaN, with the standard library."""
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text)


def is_object(text: str) -> bool:
    """Return True for the text of a complete JSON object."""
    try:
        return text.endswith("}") and isinstance(read_json(text), dict)
    except (ValueError, RecursionError):
        return False
