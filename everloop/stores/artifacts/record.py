"""The record of an artifact in Redis, and a string for the tail of each part.

The content of a part is its segments, which are blobs, and then its tail. Keys:

- `everloop:artifact:<context>:<id>`: the record, as JSON. Every change writes it, so that WATCH detects all
  changes.
- `everloop:artifact-tail:<context>:<id>:<index>`: the tail of a part.
- `everloop:context:<context>:artifacts`: sorted set of the keys of its records.
- `everloop:artifacts:expiring`: sorted set of the keys of all records, by the end of their time to live.
- `everloop:artifact-blobs:pending`: sorted set of keys of blobs that are in no record yet, or no longer, by
  the time of that.
- `everloop:artifacts:known-since`: string, the time since which the housekeeping has these records, in
  seconds. It changes when Redis is lost.

With encryption all content is encrypted, and the record. A piece that is appended to a tail has a header with
its encryption. Blobs have no header, because clients may fetch them from their store: the name of an
encrypted one ends with `.sealed`.
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
    """The tail of a part in Redis differs from the one that was stored. Clients read this text as well."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.args = (f"{key} is damaged, because its CRC-32 is another one than when it was stored",)


class Segment(Wire):
    """A blob with a piece of a part. `name` is the last word of its key, `size` is in bytes."""

    name: str
    size: int


class PartContent(Wire):
    """The storage of a part's content.

    `generation` changes when the part is replaced: content of the same generation only grows. `tail` is in
    bytes, `tail_crc` its CRC-32. `joined` is the last word of the key of a blob with all of a complete part;
    clients fetch it from the blob store themselves.
    """

    generation: str
    segments: tuple[Segment, ...] = ()
    tail: int = 0
    tail_crc: int = 0
    joined: str = ""

    @property
    def flushed(self) -> int:
        """The number of bytes in segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def blob_names(self) -> list[str]:
        """The names of all blobs of this part."""
        names = [segment.name for segment in self.segments]
        return [*names, self.joined] if self.joined else names

    def segment_at(self, position: int) -> tuple[Segment, int] | None:
        """Return the segment with the byte at a position, and its start, or None if it is in the tail."""
        first = 0
        for segment in self.segments:
            if first <= position < first + segment.size:
                return segment, first
            first += segment.size
        return None

    def check_tail(self, tail: bytes | None, key: str) -> bytes:
        """Check a tail against its record, and return it.

        Raises:
            BlobMissingError: The tail is missing.
            BlobCorruptError: The tail differs.
        """
        if not self.tail:
            return b""
        if tail is None:
            raise BlobMissingError(key)
        if len(tail) != self.tail or zlib.crc32(tail) != self.tail_crc:
            raise TailCorruptError(key)
        return tail


class ArtifactRecord(Wire):
    """An artifact, the storage of its content, and the end of its time to live.

    `tokens` identify the last changes, so that a repetition after a lost answer is recognized.
    """

    artifact: StoredArtifact
    contents: tuple[PartContent, ...] = ()
    expires_at: datetime
    tokens: tuple[str, ...] = ()

    @property
    def address(self) -> "ArtifactAddress":
        """The keys of this artifact."""
        return ArtifactAddress(self.artifact.context_id, self.artifact.artifact_id)

    def blob_keys(self) -> list[str]:
        """Return the keys of all blobs of this artifact."""
        names = [name for content in self.contents for name in content.blob_names]
        return [self.address.blob_key(name) for name in names]


def seal_record(record: ArtifactRecord, cipher: Cipher) -> str:
    """Return a record as it is stored in Redis."""
    return cipher.seal_text(record.model_dump_json(), record.address.record_key)


def unseal_record(sealed: str, record_key: str, cipher: Cipher) -> ArtifactRecord:
    """Return a record from its stored form.

    Raises:
        EncryptionError: It cannot be decrypted.
    """
    return ArtifactRecord.model_validate_json(cipher.unseal_text(sealed, record_key))


def seal_tail(content: bytes, tail_key: str, cipher: Cipher) -> bytes:
    """Return content as it is written or appended to a tail in Redis."""
    return cipher.seal(content, tail_key)


def unseal_tail(sealed: bytes, tail_key: str, cipher: Cipher) -> bytes:
    """Return a tail from its stored form.

    Raises:
        TailCorruptError: It differs from the one that was written.
        UnknownKeyError: Its encryption key is missing.
    """
    try:
        return cipher.unseal(sealed, tail_key)
    except SealBrokenError:
        raise TailCorruptError(tail_key) from None


class ArtifactAddress:
    """The keys of one artifact. They are unique for any characters in ids.

    Raises:
        ArtifactIdError: The id is invalid.
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
