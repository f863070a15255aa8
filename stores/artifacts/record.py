"""What Redis keeps of an artifact: a record, and a string for the tail of each part.

The content of a part is its segments, which are blobs, and then its tail. Keys:

- `everloop:artifact:<context>:<id>`: the record, as JSON. Every change writes it, so that whoever watches it
  notices.
- `everloop:artifact-tail:<context>:<id>:<index>`: the tail of a part.
- `everloop:context:<context>:artifacts`: sorted set of the keys of its records.
- `everloop:artifacts:expiring`: sorted set of the keys of all records, by the end of their time to live.
- `everloop:artifact-blobs:pending`: sorted set of keys of blobs that no record names, or none in a moment, by
  the time of that.
- `everloop:artifacts:known-since`: string, since when the housekeeping knows these records, in seconds;
  another time when Redis was lost.

If anything is encrypted, all content is, and the record. What is appended to a tail is a piece with a header
that says whether it is. Blobs have no header, because clients may fetch them from their store: the name of
one that is encrypted ends with `.sealed`.
"""

import hashlib
import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from everloop.runtime.blobs import ARTIFACT_FOLDER, BlobCorruptError, BlobMissingError
from everloop.runtime.encryption.cipher import Cipher, SealBrokenError
from everloop.stores.artifacts.rules import Changed, check_id
from everloop.stores.keys import ARTIFACT_RECORD_PREFIX, ARTIFACT_TAIL_PREFIX, context_artifacts_key
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.payloads import Wire

SEALED = ".sealed"
"""How the names of blobs end that are encrypted."""


class TailCorruptError(BlobCorruptError):
    """What Redis keeps as the tail of a part is not what was put there; clients read this text as well."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.args = (f"{key} is damaged, because its CRC-32 is another one than when it was stored",)


class Segment(Wire):
    """A blob that holds a piece of a part. `name` is the last word of its key, `size` is in bytes."""

    name: str
    size: int


class PartContent(Wire):
    """Where the content of a part is.

    `generation` is another one when the part was replaced: as long as it is the same, content only grew.
    `tail` is in bytes, `tail_crc` its CRC-32. `joined` is the last word of the key of a blob that holds all
    of a part that is whole; clients fetch it from the blob store themselves.
    """

    generation: str
    segments: tuple[Segment, ...] = ()
    tail: int = 0
    tail_crc: int = 0
    joined: str = ""

    @property
    def flushed(self) -> int:
        """How many bytes are in segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def blob_names(self) -> list[str]:
        """The names of all blobs of this part."""
        names = [segment.name for segment in self.segments]
        return [*names, self.joined] if self.joined else names

    def segment_at(self, position: int) -> tuple[Segment, int] | None:
        """Return the segment that holds the byte at a position, and where it begins; None: the tail."""
        first = 0
        for segment in self.segments:
            if first <= position < first + segment.size:
                return segment, first
            first += segment.size
        return None

    def check_tail(self, tail: bytes | None, key: str) -> bytes:
        """Return the tail that was found if it is the one that was written.

        Raises:
            BlobMissingError: there is none.
            BlobCorruptError: it is another one.
        """
        if not self.tail:
            return b""
        if tail is None:
            raise BlobMissingError(key)
        if len(tail) != self.tail or zlib.crc32(tail) != self.tail_crc:
            raise TailCorruptError(key)
        return tail


class ArtifactRecord(Wire):
    """An artifact, where its content is, and the end of its time to live.

    `tokens` name the last changes, so that one whose answer was lost is recognized.
    """

    artifact: StoredArtifact
    contents: tuple[PartContent, ...] = ()
    expires_at: datetime
    tokens: tuple[str, ...] = ()

    @property
    def address(self) -> "ArtifactAddress":
        """Where everything of this artifact is kept."""
        return ArtifactAddress(self.artifact.context_id, self.artifact.artifact_id)

    def blob_keys(self) -> list[str]:
        """Return the keys of all blobs of this artifact."""
        names = [name for content in self.contents for name in content.blob_names]
        return [self.address.blob_key(name) for name in names]


def seal_record(record: ArtifactRecord, cipher: Cipher) -> str:
    """Return what Redis keeps of a record."""
    return cipher.seal_text(record.model_dump_json(), record.address.record_key)


def unseal_record(kept: str, record_key: str, cipher: Cipher) -> ArtifactRecord:
    """Return a record.

    Raises:
        EncryptionError: it cannot be decrypted.
    """
    return ArtifactRecord.model_validate_json(cipher.unseal_text(kept, record_key))


def seal_tail(content: bytes, tail_key: str, cipher: Cipher) -> bytes:
    """Return what is appended to a tail, or stands in its place."""
    return cipher.seal(content, tail_key)


def unseal_tail(kept: bytes, tail_key: str, cipher: Cipher) -> bytes:
    """Return a tail.

    Raises:
        TailCorruptError: it is not what was written.
        UnknownKeyError: its key is not known.
    """
    try:
        return cipher.unseal(kept, tail_key)
    except SealBrokenError:
        raise TailCorruptError(tail_key) from None


class ArtifactAddress:
    """The keys of one artifact. No two artifacts share one, whatever signs their ids hold.

    Raises:
        ArtifactIdError: this is no id of an artifact.
    """

    def __init__(self, context_id: str, artifact_id: str) -> None:
        name = f"{quote(context_id, safe=':')}:{quote(check_id(artifact_id), safe='')}"
        self.artifact_id = artifact_id
        self._tail = ARTIFACT_TAIL_PREFIX + name
        self._folder = _blob_folder(name)
        self.record_key = ARTIFACT_RECORD_PREFIX + name
        self.index_key = context_artifacts_key(context_id)

    def tail_key(self, index: int) -> str:
        """Redis string: the tail of a part."""
        return f"{self._tail}:{index}"

    def blob_key(self, name: str) -> str:
        """Blob: a segment of a part, or all of it."""
        return f"{self._folder}/{name}"


def folder_of_record(record_key: str) -> str:
    """Return the folder of the blobs of the artifact of a record."""
    return _blob_folder(record_key.removeprefix(ARTIFACT_RECORD_PREFIX))


def _blob_folder(name: str) -> str:
    return f"{ARTIFACT_FOLDER}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


# Where the content of an artifact goes: into blobs, or into strings that Redis keeps beside its record.

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
