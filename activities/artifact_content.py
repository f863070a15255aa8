"""What tools hand over as content, in the form in which the artifact store takes it."""

import base64
import binascii
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence

from everloop.agents.tool_context import Content
from everloop.stores.artifacts.interface import NewPart
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart

PIECE_BYTES = 1024 * 1024
"""The longest piece of a stream that the store gets at once."""

_PIECE_CHARACTERS = PIECE_BYTES // 4  # UTF-8 takes at most 4 bytes for one


async def chunks_of(content: Content) -> AsyncIterator[str | bytes]:
    """Yield content as it comes; what yields pieces itself is read only as far as needed."""
    if isinstance(content, str | bytes):
        yield content
    elif isinstance(content, AsyncIterable):
        async for chunk in content:
            yield chunk
    else:
        for chunk in content:
            yield chunk


def slices_of(chunk: str | bytes) -> Iterator[bytes]:
    """Yield a text, or bytes, in slices of at most 1 MiB.

    Raises:
        UnicodeEncodeError: the text holds half a character.
    """
    if isinstance(chunk, str):
        for start in range(0, len(chunk), _PIECE_CHARACTERS):
            yield chunk[start : start + _PIECE_CHARACTERS].encode()
    else:
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE_BYTES):
            yield bytes(view[start : start + PIECE_BYTES])


def encode_json(value: object) -> bytes:
    """Return a JSON value as UTF-8.

    Raises:
        ValueError: it is none, for example because it holds NaN or half a character.
        TypeError: it holds something that JSON does not know.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def new_parts(parts: Sequence[Part]) -> tuple[NewPart, ...]:
    """Return parts as the store takes them.

    Raises:
        ValueError: one has no content that could be stored.
    """
    return tuple(map(new_part, parts))


def new_part(part: Part) -> NewPart:
    """Return a part as the store takes it.

    Raises:
        ValueError: it has no content that could be stored.
    """
    match part:
        case TextPart():
            return NewPart("text", part.text.encode(), part.media_type, part.filename)
        case DataPart():
            return NewPart("data", encode_json(part.data), part.media_type, part.filename)
        case FilePart(url="", stored=None):
            return NewPart("file", _decoded(part), part.media_type, part.filename)
        case FilePart(stored=None):
            return NewPart("file", b"", part.media_type, part.filename, url=part.url)
        case FilePart():
            raise ValueError(
                f"the file {part.filename!r} is part of another artifact; read it, and write what you read"
            )


def _decoded(part: FilePart) -> bytes:
    try:
        return base64.b64decode(part.content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the content of the file {part.filename!r} is not base64: {error}") from error
