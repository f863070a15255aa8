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
import zlib
from datetime import UTC, datetime
from urllib.parse import quote

from everloop.runtime.blobs import ARTIFACT_FOLDER, BlobCorruptError, BlobMissingError
from everloop.runtime.encryption.cipher import Cipher, SealBrokenError
from everloop.stores.artifacts.rules import check_id
from everloop.stores.keys import (
    ARTIFACT_RECORD_PREFIX,
    ARTIFACT_TAIL_PREFIX,
    context_artifacts_key,
    context_tag,
    pending_blobs_key,
)
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.payloads import Wire


def now() -> datetime:
    """Return the time by the clock of this machine."""
    return datetime.now(UTC)


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
        name = f"{context_tag(context_id)}:{quote(check_id(artifact_id), safe='')}"
        self.artifact_id = artifact_id
        self._tail = ARTIFACT_TAIL_PREFIX + name
        self._folder = _blob_folder(name)
        self.record_key = ARTIFACT_RECORD_PREFIX + name
        self.index_key = context_artifacts_key(context_id)
        self.pending_key = pending_blobs_key(context_id)

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
