"""Writes one part of an artifact, piece by piece."""

import asyncio
import base64
import binascii
import json
import math
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self, TypeVar

from everloop.activities.batcher import LAST_WORD, Batcher
from everloop.activities.store_retries import retry_artifacts, suppress_store_errors
from everloop.agents.tool_context import FileWriter
from everloop.stores.artifacts.changes import Append, Change, Create, Fail, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.artifacts.rendering import RENDERED_BYTES
from everloop.stores.artifacts.writer import SEGMENT_BYTES
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.messages import DataPart, FilePart, Part, TextPart

T = TypeVar("T")

# Converts the content that tools pass into the form of the artifact store.

PIECE_BYTES = 1024 * 1024
"""Limit of a piece that is sent to the store."""

_PIECE_CHARACTERS = PIECE_BYTES // 4  # UTF-8 takes at most 4 bytes for one


async def items_of(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield items of any iterable; a source that yields them lazily is read only as far as needed."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def slices_of(chunk: str | bytes) -> Iterator[bytes]:
    """Yield a text, or bytes, in slices of at most 1 MiB.

    Raises:
        UnicodeEncodeError: The text contains half a character.
    """
    if isinstance(chunk, str):
        for start in range(0, len(chunk), _PIECE_CHARACTERS):
            yield chunk[start : start + _PIECE_CHARACTERS].encode()
    else:
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE_BYTES):
            yield bytes(view[start : start + PIECE_BYTES])


def new_part(part: Part) -> NewPart:
    """Return a part in the form of the store.

    Raises:
        ValueError: Its content cannot be stored, for example because JSON has no NaN.
    """
    match part:
        case TextPart():
            content = part.text.encode()
        case DataPart():
            written = json.dumps(part.data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            content = written.encode()
        case FilePart(stored=None):
            content = b"" if part.url else _decoded(part)
        case FilePart():
            raise ValueError(
                f"the file {part.filename!r} is part of another artifact; read it, and write what you read"
            )
    url = part.url if isinstance(part, FilePart) else ""
    return NewPart(part.kind, content, part.media_type, part.filename, url=url)


def _decoded(part: FilePart) -> bytes:
    try:
        return base64.b64decode(part.content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the content of the file {part.filename!r} is not base64: {error}") from error


INTERVAL = 0.025
"""Seconds between writes to the store; pieces in between are combined."""

HIDDEN_INTERVAL = 1.0
"""The same for content that is too large to be rendered while it is written."""

_BATCH_ROWS = 1000
"""Limit of rows in one write: the store validates each one."""


async def anybody() -> None:
    """Pass all operations through."""


@dataclass(eq=False)
class PieceWriter:
    """Creates an artifact with its first piece, and appends the others.

    `create` describes it, with one part without content. From then on only this writer may change it: an
    earlier attempt at this call, on a worker that was wrongly considered lost, would mix its pieces with
    these. `attempt` is the prefix of ids of `everloop.stores.artifacts.changes`: an earlier attempt may not
    begin either. `check` raises if the attempt was overtaken. The artifact is added to `written`, the
    artifacts of the call. An outage of the store is waited out.
    """

    artifacts: ArtifactPublisher
    context_id: str
    artifact_id: str
    create: Create
    written: dict[str, int]
    _: KW_ONLY
    attempt: str = ""
    check: Callable[[], Awaitable[None]] = anybody

    def __post_init__(self) -> None:
        self._writer_id = f"{self.attempt}{secrets.token_hex(8)}-"
        self._count = 0

    def name_type(self, media_type: str) -> None:
        """Set the media type of the content unless it is set. Has to precede the first piece."""
        (part,) = self.create.parts
        self.create = replace(self.create, parts=(replace(part, media_type=part.media_type or media_type),))

    async def put(self, content: bytes, *, rows: int = 0, is_last: bool = False) -> StoredArtifact:
        """Write the next piece; with `is_last` the artifact is complete."""
        await self.check()
        is_first, self._count = not self._count, self._count + 1
        change: Change = Append(content, -1, rows, is_last)
        if is_first:
            (part,) = self.create.parts
            change = replace(self.create, parts=(replace(part, content=content),), complete=is_last)
        operation_id = f"{self._writer_id}{self._count}"
        # The store may have written it although its answer was lost. With the same id it does nothing twice.
        artifact = await retry_artifacts(lambda: self._apply(change, operation_id))
        self.written[self.artifact_id] = artifact.version
        return artifact

    async def fail(self) -> None:
        """Mark the artifact as unfinished, if it was begun and the store is available.

        If not, the next attempt replaces it, or the end of the task marks it.
        """
        if not self._count:
            return
        self.written.pop(self.artifact_id, None)
        with suppress_store_errors("artifact not marked as failed"):
            async with asyncio.timeout(LAST_WORD):
                await self._apply(Fail(), "")

    async def _apply(self, change: Change, operation_id: str) -> StoredArtifact:
        follows = "" if isinstance(change, Create) else self._writer_id
        return await self.artifacts.apply(
            self.context_id, self.artifact_id, change, operation_id=operation_id, follows=follows
        )


class Batches(FileWriter):
    """Combines small pieces and writes them every 25 ms; beyond the rendered size, by whole segments.

    The first is written at once, unless the content is complete (`is_whole`). The artifact is complete at the
    end of the block, and failed if the block raises. `artifact` is its final state. `hide` masks secrets in
    texts.
    """

    artifact: StoredArtifact

    def __init__(self, writer: PieceWriter, hide: Callable[[str], str], *, is_complete: bool = False) -> None:
        self._writer = writer
        self._hide = hide
        self._pending = bytearray()
        self._rows = 0
        self._sent = 0
        self._finished = False
        self._batcher = Batcher(self._send, math.inf if is_complete else 0.0)

    async def __aenter__(self) -> Self:
        await self._batcher.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                await self._batcher.stop()
                content, rows = self._take()
                self.artifact = await self._writer.put(content, rows=rows, is_last=True)
                self._finished = True
        finally:
            await self._batcher.__aexit__(kind, error, trace)
            if not self._finished:
                await self._writer.fail()

    async def write(self, chunk: str | bytes) -> None:
        """Append a piece; by default the type of its first chunk, text or bytes, is that of the content."""
        self._writer.name_type("text/plain" if isinstance(chunk, str) else "application/octet-stream")
        for piece in slices_of(self._hide(chunk) if isinstance(chunk, str) else chunk):
            await self.add(piece)

    async def add(self, piece: bytes, *, rows: int = 0) -> None:
        """Add a piece of at most 1 MiB. If a later write of it fails, the next call raises."""
        self._batcher.check()
        if self._pending and len(self._pending) + len(piece) > self._room:
            await self._batcher.send()
        self._pending += piece
        self._rows += rows
        is_full = len(self._pending) >= self._room or self._rows >= _BATCH_ROWS
        if is_full or self._batcher.is_due:
            await self._batcher.send()
        else:
            self._batcher.add()

    @property
    def _room(self) -> int:
        """Bytes per write; a full segment needs no detour through Redis."""
        return PIECE_BYTES if self._sent <= RENDERED_BYTES else SEGMENT_BYTES

    async def _send(self) -> float:
        if self._pending:
            content, rows = self._take()
            self._sent += len(content)
            await self._writer.put(content, rows=rows)
        return INTERVAL if self._sent <= RENDERED_BYTES else HIDDEN_INTERVAL

    def _take(self) -> tuple[bytes, int]:
        taken = bytes(self._pending), self._rows
        self._pending.clear()
        self._rows = 0
        return taken
