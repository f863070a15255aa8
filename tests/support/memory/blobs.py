"""Blobs in memory, for tests: what they compare the real store with."""

import hashlib
from datetime import timedelta

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, BlobPage, Blobs, check_key

_DIGEST_BYTES = hashlib.sha256().digest_size


class MemoryBlobs(Blobs):
    """Keeps everything, each blob with its sha256 behind it, until the process ends."""

    location = "the memory of this process"

    def __init__(self) -> None:
        self._sealed: dict[str, bytes] = {}

    async def put(self, key: str, content: bytes) -> None:
        self._sealed[check_key(key)] = content + hashlib.sha256(content).digest()

    async def get(self, key: str) -> bytes:
        if check_key(key) not in self._sealed:
            raise BlobMissingError(key)
        sealed = self._sealed[key]
        content = sealed[:-_DIGEST_BYTES]
        if hashlib.sha256(content).digest() != sealed[-_DIGEST_BYTES:]:
            raise BlobCorruptError(key)
        return content

    async def delete(self, key: str) -> None:
        self._sealed.pop(check_key(key), None)

    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        return BlobPage(())  # none of them gets old

    async def remove(self, key: str, age: timedelta) -> bool:
        return False
