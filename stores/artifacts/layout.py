"""Where the content of an artifact goes: into blobs, or into strings that Redis keeps beside its record."""

import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from everloop.stores.artifacts.blobs import ArtifactBlobs
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord, PartContent, Segment
from everloop.stores.artifacts.rules import Changed, Write
from everloop.workflows.contract.artifacts import ArtifactStatus

SEGMENT_BYTES = 5 * 1024 * 1024
"""What S3 joins has to be at least this long, except the last piece."""

INLINE_BYTES = 100_000
"""Bytes of a part that Redis keeps by default before it moves to blobs."""

ReadTail = Callable[[ArtifactAddress, int], Awaitable[bytes | None]]
"""Returns the tail of a part by its index; None if there is none."""


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


class Layout:
    """What has to be done so that the content of a changed artifact is as `contents` says, once laid out.

    `puts` are new blobs by key; `joins` are to be made of others, by key; `tails` is what is written to the
    tails of parts: behind them, or in their place.
    """

    def __init__(
        self,
        before: ArtifactRecord | None,
        changed: Changed,
        sizes: Sizes,
        read_tail: ReadTail,
        blobs: ArtifactBlobs,
    ) -> None:
        self.puts: dict[str, bytes] = {}
        self.joins: dict[str, list[str]] = {}
        self.tails: list[Write] = []
        self.contents = list(before.contents) if before and not changed.is_new else []
        self._before = before.contents if before else ()
        self._address = ArtifactAddress(changed.artifact.context_id, changed.artifact.artifact_id)
        self._writes = changed.writes
        self._sizes = sizes
        self._read_tail = read_tail
        self._blobs = blobs
        # One that failed stays as it is: it has to end also when its blobs are lost, or their store is away.
        self._is_closing = changed.artifact.status is ArtifactStatus.COMPLETE

    async def lay_out(self) -> None:
        """Find a place for what is written; when the artifact is complete, also for the tails that are there.

        Raises:
            BlobError: what has to be put anew cannot be read.
        """
        for write in self._writes:
            if write.is_new:
                self.contents[write.index : write.index + 1] = [PartContent(generation=uuid.uuid4().hex)]
            await self._extend(write)
        if self._is_closing:
            for index in range(len(self.contents)):
                await self._extend(Write(index, b""))
            if self._blobs.links is not None:
                self._join()
        gone = range(len(self.contents), len(self._before))
        self.tails += [Write(index, b"", is_new=True) for index in gone]

    def contents_with(self, blobs: Sequence[str]) -> tuple[PartContent, ...]:
        """Return the contents without the joined blobs that are not among these, by key."""
        there = {key.rpartition("/")[2] for key in blobs}
        left_out = {key.rpartition("/")[2] for key in self.joins} - there
        return tuple(
            content.model_copy(update={"joined": ""}) if content.joined in left_out else content
            for content in self.contents
        )

    def released(self) -> list[str]:
        """Return the keys of blobs that are named no more."""
        named = {name for content in self.contents for name in content.blob_names}
        left = (name for content in self._before for name in content.blob_names)
        return [self._address.blob_key(name) for name in left if name not in named]

    def _join(self) -> None:
        """Let each part of several segments be one blob as well."""
        for index, content in enumerate(self.contents):
            if len(content.segments) > 1:
                name = self._blobs.new_name()
                sources = [self._address.blob_key(segment.name) for segment in content.segments]
                self.joins[self._address.blob_key(name)] = sources
                self.contents[index] = content.model_copy(update={"joined": name})

    async def _extend(self, write: Write) -> None:
        content, added = self.contents[write.index], write.content
        if self._sizes.must_flush(content, len(added), is_closing=self._is_closing):
            await self._flush(write.index, added)
        elif added or write.is_new:
            crc = zlib.crc32(added, content.tail_crc)
            update = {"tail": content.tail + len(added), "tail_crc": crc}
            self.contents[write.index] = content.model_copy(update=update)
            self.tails.append(write)

    async def _flush(self, index: int, added: bytes) -> None:
        content = self.contents[index]
        kept, loose = content.segments, list[bytes]()
        if self._sizes.open_bytes(content):
            kept = content.segments[:-1]
            loose.append(await self._blobs.get(self._address.blob_key(content.segments[-1].name)))
        if content.tail:
            tail_key = self._address.tail_key(index)
            loose.append(content.check_tail(await self._read_tail(self._address, index), tail_key))
        pieces, tail = self._sizes.cut(b"".join([*loose, added]), is_closing=self._is_closing)
        self.contents[index] = PartContent(
            generation=content.generation,
            segments=(*kept, *self._put(pieces)),
            tail=len(tail),
            tail_crc=zlib.crc32(tail),
        )
        self.tails.append(Write(index, tail, is_new=True))

    def _put(self, pieces: list[bytes]) -> Iterator[Segment]:
        for piece in pieces:
            name = self._blobs.new_name()
            self.puts[self._address.blob_key(name)] = piece
            yield Segment(name=name, size=len(piece))
