"""Where the content of an artifact goes: into blobs, or into strings that Redis keeps beside its record.

A part begins as a tail in Redis. Once it outgrows the inline limit, it moves into segments: blobs of one
size, except the last, which is put anew as it grows. What is appended waits in the tail until it is as long
as all the segments, or fills one. So a byte is put about twice while the part is small, and once after that;
a part has few segments, and no tail is longer than a segment. When the artifact is complete, tails of parts
that have segments go there too.
"""

import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord, PartContent, Segment
from everloop.stores.artifacts.rules import Changed
from everloop.workflows.contract.artifacts import ArtifactStatus

SEGMENT_BYTES = 5 * 1024 * 1024
"""What S3 joins has to be at least this long, except the last piece."""

INLINE_BYTES = 100_000
"""Bytes of a part that Redis keeps by default before it moves to blobs."""


@dataclass(frozen=True)
class Sizes:
    """`inline`: how many bytes of a part stay in Redis, at most `segment`."""

    inline: int = INLINE_BYTES
    segment: int = SEGMENT_BYTES

    def must_flush(self, content: PartContent, added: int, *, is_closing: bool) -> bool:
        """Whether the tail goes into segments when so many bytes are appended."""
        tail, flushed = content.tail + added, content.flushed
        if not flushed:
            return tail > self.inline
        filled = self.open_bytes(content) + tail >= self.segment
        return filled or tail >= max(self.inline, flushed) or (is_closing and tail > 0)

    def open_bytes(self, content: PartContent) -> int:
        """Return the size of the last segment if that is not full, 0 otherwise."""
        last = content.segments[-1].size if content.segments else 0
        return last if last < self.segment else 0

    def cut(self, loose: bytes, *, is_closing: bool) -> tuple[list[bytes], bytes]:
        """Return the segments that the end of a part comes to, and its tail."""
        full = len(loose) // self.segment * self.segment
        segments = [loose[at : at + self.segment] for at in range(0, full, self.segment)]
        rest = loose[full:]
        if rest and (is_closing or not segments):
            return [*segments, rest], b""
        return segments, rest


@dataclass(frozen=True)
class TailWrite:
    """What is written to the tail of part `index`: behind it, or, with `is_new`, in its place."""

    index: int
    content: bytes
    is_new: bool


@dataclass
class Layout:
    """What has to be done so that the content of an artifact is as `contents` says.

    `puts` are new blobs by key; `joins` are to be made of others, by key; `released` are keys of blobs that
    are named no more.
    """

    contents: tuple[PartContent, ...] = ()
    puts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    joins: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    released: list[str] = field(default_factory=list[str])
    tails: list[TailWrite] = field(default_factory=list[TailWrite])

    def contents_with(self, blobs: Sequence[str]) -> tuple[PartContent, ...]:
        """Return the contents without the joined blobs that are not among these, by key."""
        there = {key.rpartition("/")[2] for key in blobs}
        left_out = {key.rpartition("/")[2] for key in self.joins} - there
        return tuple(
            content.model_copy(update={"joined": ""}) if content.joined in left_out else content
            for content in self.contents
        )


@dataclass(frozen=True)
class Sources:
    """How what is there already is read: the tail of a part by index, a blob by key.

    `new_name` makes the last word of the key of a new blob.
    """

    tail: Callable[[int], Awaitable[bytes | None]]
    blob: Callable[[str], Awaitable[bytes]]
    new_name: Callable[[], str]


def new_name() -> str:
    """Return a name that nothing else has."""
    return uuid.uuid4().hex


async def lay_out(
    before: ArtifactRecord | None, changed: Changed, sizes: Sizes, sources: Sources, *, joins: bool
) -> Layout:
    """Return where the content of a changed artifact goes. `joins`: whole parts are to be one blob each.

    Raises:
        BlobError: what has to be put anew cannot be read.
    """
    artifact = changed.artifact
    address = ArtifactAddress(artifact.context_id, artifact.artifact_id)
    draft = _Draft(address, before, changed, sizes, sources)
    await draft.write()
    if joins and artifact.status is ArtifactStatus.COMPLETE:
        draft.join()
    return draft.layout()


class _Draft:
    """A layout that is being made."""

    def __init__(
        self,
        address: ArtifactAddress,
        before: ArtifactRecord | None,
        changed: Changed,
        sizes: Sizes,
        sources: Sources,
    ) -> None:
        self._address = address
        self._before = before
        self._changed = changed
        self._sizes = sizes
        self._sources = sources
        # One that failed stays as it is: it has to end also when its blobs are lost, or their store is away.
        self._is_closing = changed.artifact.status is ArtifactStatus.COMPLETE
        self._contents = list(before.contents) if before and not changed.is_new else []
        self._layout = Layout()

    async def write(self) -> None:
        """Lay out what is written; when the artifact is complete, also the tails that are there."""
        for write in self._changed.writes:
            index = write.index
            if write.is_new:
                self._contents[index : index + 1] = [PartContent(generation=new_name())]
            await self._extend(index, write.content, is_new=write.is_new)
        if self._is_closing:
            for index in range(len(self._contents)):
                await self._extend(index, b"", is_new=False)

    def join(self) -> None:
        """Let each part of several segments be one blob as well."""
        for index, content in enumerate(self._contents):
            if len(content.segments) > 1:
                name = self._sources.new_name()
                sources = [self._address.blob_key(segment.name) for segment in content.segments]
                self._layout.joins[self._address.blob_key(name)] = sources
                self._contents[index] = content.model_copy(update={"joined": name})

    def layout(self) -> Layout:
        """Return what was made, with what it leaves behind."""
        layout = self._layout
        layout.contents = tuple(self._contents)
        if self._before:
            named = {name for content in self._contents for name in content.blob_names}
            left = (name for content in self._before.contents for name in content.blob_names)
            layout.released = [self._address.blob_key(name) for name in left if name not in named]
            gone = range(len(self._contents), len(self._before.contents))
            layout.tails += [TailWrite(index, b"", is_new=True) for index in gone]
        return layout

    async def _extend(self, index: int, added: bytes, *, is_new: bool) -> None:
        content = self._contents[index]
        if self._sizes.must_flush(content, len(added), is_closing=self._is_closing):
            await self._flush(index, added)
        elif added or is_new:
            crc = zlib.crc32(added, content.tail_crc)
            update = {"tail": content.tail + len(added), "tail_crc": crc}
            self._contents[index] = content.model_copy(update=update)
            self._layout.tails.append(TailWrite(index, added, is_new=is_new))

    async def _flush(self, index: int, added: bytes) -> None:
        content = self._contents[index]
        is_open = self._sizes.open_bytes(content) > 0
        kept = content.segments[:-1] if is_open else content.segments
        loose = [await self._open_segment(content)] if is_open else []
        loose += [await self._tail(index, content), added]
        pieces, tail = self._sizes.cut(b"".join(loose), is_closing=self._is_closing)
        self._contents[index] = PartContent(
            generation=content.generation,
            segments=(*kept, *self._put(pieces)),
            tail=len(tail),
            tail_crc=zlib.crc32(tail),
        )
        self._layout.tails.append(TailWrite(index, tail, is_new=True))

    async def _open_segment(self, content: PartContent) -> bytes:
        return await self._sources.blob(self._address.blob_key(content.segments[-1].name))

    async def _tail(self, index: int, content: PartContent) -> bytes:
        if not content.tail:
            return b""
        return content.check_tail(await self._sources.tail(index), self._address.tail_key(index))

    def _put(self, pieces: list[bytes]) -> Iterator[Segment]:
        for piece in pieces:
            name = self._sources.new_name()
            self._layout.puts[self._address.blob_key(name)] = piece
            yield Segment(name=name, size=len(piece))
