"""Blobs in memory, for tests: what they compare the real store with."""

from everloop.runtime.blobs import BlobMissingError, Blobs, check_key, seal, unseal


class MemoryBlobs(Blobs):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._sealed: dict[str, bytes] = {}

    @property
    def location(self) -> str:
        return "the memory of this process"

    async def put(self, key: str, content: bytes) -> None:
        self._sealed[check_key(key)] = seal(content)

    async def get(self, key: str) -> bytes:
        if check_key(key) not in self._sealed:
            raise BlobMissingError(key)
        return unseal(self._sealed[key], key)

    async def delete(self, key: str) -> None:
        self._sealed.pop(check_key(key), None)
