"""Encryption of data in Temporal: every payload, and messages and stack traces of failures."""

from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from everloop.runtime.blobs import in_hashing_thread
from everloop.runtime.encryption.cipher import Box, Cipher, SealBrokenError

ENCODING = b"binary/encrypted"
"""Encoding of encrypted payloads, as in Temporal's samples. Histories contain it: never change it."""

KEY_ID = "encryption-key-id"

PURPOSE = "temporal payload"

_LARGE = 64 * 1024
"""Minimum size in bytes of payloads that are encrypted in a thread."""


class EncryptionCodec(PayloadCodec):
    """Encrypts each payload with its metadata; unencrypted payloads are read unchanged.

    Histories that began before encryption was on therefore continue. Without keys nothing is encrypted;
    an encrypted payload is then an error, which Temporal retries. Payloads of at least
    `repeatable_from` bytes are encrypted deterministically: they become blobs named by their content,
    and a replay stores them again.
    """

    def __init__(self, cipher: Cipher, *, repeatable_from: int) -> None:
        self._cipher = cipher
        self._repeatable_from = repeatable_from

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not self._cipher.is_on:
            return list(payloads)
        return [await self._encode(payload) for payload in payloads]

    @property
    def is_on(self) -> bool:
        """True if payloads are encrypted."""
        return self._cipher.is_on

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode payloads.

        Raises:
            EncryptionError: one cannot be decrypted. Temporal retries until its key is configured.
        """
        return [await self._decode(payload) for payload in payloads]

    async def _encode(self, payload: Payload) -> Payload:
        if payload.ByteSize() < _LARGE:
            return self._encrypted(payload)
        return await in_hashing_thread(lambda: self._encrypted(payload))

    async def _decode(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING or len(payload.data) < _LARGE:
            return decrypted(payload, self._cipher)
        return await in_hashing_thread(lambda: decrypted(payload, self._cipher))

    def _encrypted(self, payload: Payload) -> Payload:
        plain = payload.SerializeToString(deterministic=True)
        box = self._cipher.encrypt(plain, PURPOSE, repeatable=len(plain) >= self._repeatable_from)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: box.key_id.encode()}, data=box.content)


def decrypted(payload: Payload, cipher: Cipher) -> Payload:
    """Decrypt a payload; an unencrypted one is returned unchanged.

    Raises:
        EncryptionError: it cannot be decrypted.
    """
    if payload.metadata.get("encoding") != ENCODING:
        return payload
    key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
    plain = cipher.decrypt(Box(key_id, payload.data), PURPOSE)
    try:
        return Payload.FromString(plain)
    except ValueError:  # protobuf's DecodeError
        raise SealBrokenError(key_id) from None
