"""Blobs that are encrypted before they reach their store."""

from stores.blobs import BlobLinks, Blobs, BlobStock, BlobsUnavailableError, in_hashing_thread
from stores.encryption import Cipher, EncryptionError


class EncryptedBlobs(Blobs):
    """Stands before another store. What was put before anything was encrypted is read as it is.

    Equal content of one key is encrypted alike as long as the key of the cipher is the same, so that a second
    put changes nothing. There are no links: whoever followed one would get what is encrypted. Without keys it
    adds nothing but an error for what others have encrypted.

    What cannot be decrypted counts as a store that is away, not as a blob that is damaged: another process
    may have the right key. The store itself notices damage.
    """

    def __init__(self, blobs: Blobs, cipher: Cipher) -> None:
        self._blobs = blobs
        self._cipher = cipher

    @property
    def place(self) -> str:
        return self._blobs.place

    @property
    def stock(self) -> BlobStock | None:
        return self._blobs.stock

    @property
    def links(self) -> BlobLinks | None:
        return None if self._cipher.is_on else self._blobs.links

    async def put(self, key: str, content: bytes) -> None:
        if not self._cipher.is_on:
            await self._blobs.put(key, content)
            return
        sealed = await in_hashing_thread(lambda: self._cipher.seal(content, _purpose(key), repeatable=True))
        await self._blobs.put(key, sealed)

    async def get(self, key: str) -> bytes:
        sealed = await self._blobs.get(key)
        try:
            if not self._cipher.is_on:
                return self._cipher.unseal(sealed, _purpose(key))
            return await in_hashing_thread(lambda: self._cipher.unseal(sealed, _purpose(key)))
        except EncryptionError as error:
            raise BlobsUnavailableError(self.place, error) from error

    async def delete(self, key: str) -> None:
        await self._blobs.delete(key)


def _purpose(key: str) -> str:
    return f"blob {key}"
