"""Encryption of content at rest: XAES-256-GCM (C2SP).

That is AES-256-GCM with a key derived for each message. Nonces have 192 bits, so that random ones never
repeat in practice; those of plain AES-256-GCM may be drawn at random only 2³² times per key (NIST SP
800-38D §8.3).

EncryptionError
├── UnknownKeyError     this process lacks the key of the content
└── SealBrokenError     the content was changed, or moved to another place
"""

import base64
import binascii
import hashlib
import hmac
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 24

_TAG_BYTES = 16
_DERIVED = 12
"""Bytes of a nonce from which the message key is derived; the rest is the nonce of AES-256-GCM."""

_ID_LENGTH, _CONTENT_LENGTH = 1, 4
"""Bytes of the two length fields: of a key id, and of the content after it."""

_TEXT = "sealed:"
"""Prefix of encrypted texts. No JSON begins with it."""

COMPRESSED_FROM = 512
"""Minimum size in bytes of JSON to compress; prose then shrinks to less than half."""

COMPRESSED_TO = 64 * 1024
"""Maximum size in bytes of JSON to compress: more would block the event loop for milliseconds."""

_COMPRESSED = b"z"
"""Prefix of compressed content. No JSON begins with it."""


class EncryptionError(OSError):
    """Content cannot be decrypted here. Clients may read this text: it names neither content nor key.

    It is an OSError, because it is handled like a store that is away: the content is unavailable now,
    and available once the key is configured.
    """


class UnknownKeyError(EncryptionError):
    """This process lacks the key of the content."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"this was encrypted with the key {key_id!r}, which is not known here; add its line to the file "
            "that EVERLOOP_ENCRYPTION_KEYS_FILE names, and start this process again"
        )


class SealBrokenError(EncryptionError):
    """The content was changed, or moved to another place, since it was encrypted."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"this cannot be decrypted with the key {key_id!r}: it was changed or moved since it was "
            "encrypted, or that id has another key here; compare this line of the file that "
            "EVERLOOP_ENCRYPTION_KEYS_FILE names with that of the other processes"
        )


@dataclass(frozen=True)
class Box:
    """Encrypted content and the id of its key."""

    key_id: str
    content: bytes


class Key:
    """A key and its id.

    Raises:
        ValueError: the secret does not have 32 bytes.
    """

    def __init__(self, key_id: str, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"expected {KEY_BYTES} bytes")
        self.id = key_id
        self._secret = secret
        self._nonces = hmac.digest(secret, b"everloop nonces of repeatable encryption", "sha256")

    def seal(self, content: bytes, bound_to: bytes, nonce: bytes | None = None) -> bytes:
        """Return nonce and ciphertext; without `nonce` a random one."""
        nonce = nonce or os.urandom(NONCE_BYTES)
        return nonce + self._derived(nonce).encrypt(nonce[_DERIVED:], content, bound_to)

    def unseal(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Return the plaintext.

        Raises:
            SealBrokenError: it was changed, or is bound to something else.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 -- see `_derived`

        if len(sealed) < NONCE_BYTES + _TAG_BYTES:
            raise SealBrokenError(self.id)
        nonce = sealed[:NONCE_BYTES]
        try:
            return self._derived(nonce).decrypt(nonce[_DERIVED:], sealed[NONCE_BYTES:], bound_to)
        except InvalidTag:
            raise SealBrokenError(self.id) from None

    def nonce_of(self, content: bytes, bound_to: bytes) -> bytes:
        """Return the deterministic nonce of this content; it depends on the key."""
        digest = hmac.new(self._nonces, len(bound_to).to_bytes(8, "big") + bound_to, hashlib.sha256)
        digest.update(content)
        return digest.digest()[:NONCE_BYTES]

    def _derived(self, nonce: bytes) -> "AESGCM":
        """Derive the key of one message by CMAC in counter mode (NIST SP 800-108r1)."""
        # 6 MiB, which processes without keys do without.
        from cryptography.hazmat.primitives.ciphers import algorithms  # noqa: PLC0415 -- as above
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 -- as above
        from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode  # noqa: PLC0415 -- as above

        derivation = KBKDFCMAC(
            algorithms.AES,
            Mode.CounterMode,
            KEY_BYTES,
            rlen=2,
            llen=None,
            location=CounterLocation.BeforeFixed,
            label=None,
            context=None,
            fixed=b"X\0" + nonce[:_DERIVED],
        )
        return AESGCM(derivation.derive(self._secret))


class Cipher:
    """Encrypts with the first of its keys and decrypts with all of them; without keys it does neither.

    `purpose` binds a box to its place and owner: it does not decrypt elsewhere.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = {key.id: key for key in keys}
        self._first = keys[0] if keys else None

    @property
    def is_on(self) -> bool:
        """True if content is encrypted."""
        return self._first is not None

    def encrypt(self, content: bytes, purpose: str, *, repeatable: bool = False) -> Box:
        """Encrypt content; check `is_on` first.

        `repeatable`: equal content of one purpose and key gives equal boxes, which reveals that they
        are equal.
        """
        if self._first is None:
            raise RuntimeError("there is no key to encrypt with; ask is_on first")
        key, bound_to = self._first, _bound_to(self._first.id, purpose)
        nonce = key.nonce_of(content, bound_to) if repeatable else None
        return Box(key.id, key.seal(content, bound_to, nonce))

    def decrypt(self, box: Box, purpose: str) -> bytes:
        """Decrypt a box.

        Raises:
            UnknownKeyError: its key is missing.
            SealBrokenError: it has another purpose, or was changed.
        """
        key = self._keys.get(box.key_id)
        if key is None:
            raise UnknownKeyError(box.key_id)
        return key.unseal(box.content, _bound_to(key.id, purpose))

    def seal(self, content: bytes, purpose: str) -> bytes:
        """Return the stored form of a piece of content: key id (or none), length, content.

        Stored pieces may be concatenated.
        """
        box = self.encrypt(content, purpose) if self.is_on else Box("", content)
        key_id = box.key_id.encode()
        lengths = (len(key_id).to_bytes(_ID_LENGTH, "big"), len(box.content).to_bytes(_CONTENT_LENGTH, "big"))
        return b"".join((*lengths, key_id, box.content))

    def unseal(self, sealed: bytes, purpose: str) -> bytes:
        """Return the content of concatenated pieces, encrypted by different keys or by none.

        Raises:
            EncryptionError: a piece cannot be decrypted.
        """
        pieces: list[bytes] = []
        start = 0
        while start < len(sealed):
            box, start = _box_at(sealed, start)
            pieces.append(self.decrypt(box, purpose) if box.key_id else box.content)
        return b"".join(pieces)

    def seal_text(self, text: str, purpose: str) -> str:
        """Return the stored form of JSON: the JSON itself without keys."""
        return self._seal_text(text.encode(), purpose) if self.is_on else text

    def unseal_text(self, sealed: str, purpose: str) -> str:
        """Return the JSON of its stored form; unencrypted JSON is returned unchanged.

        Raises:
            EncryptionError: it cannot be decrypted.
        """
        return self._unseal_text(sealed, purpose).decode() if sealed.startswith(_TEXT) else sealed

    def pack(self, text: str, purpose: str) -> str | bytes:
        """Return the stored form of JSON, compressed if that pays."""
        packed = _compressed(text)
        if self.is_on:
            return self._seal_text(packed or text.encode(), purpose)
        return packed or text

    def unpack(self, packed: str, purpose: str) -> str:
        """Return the JSON of a form made by `pack` or `seal_text` and read through `connect_redis`.

        Raises:
            EncryptionError: it cannot be decrypted.
            ValueError: it is not such a form.
        """
        if packed.startswith(_TEXT):
            content = self._unseal_text(packed, purpose)
        else:
            content = packed.encode(errors="surrogateescape")
        if not content.startswith(_COMPRESSED):
            return content.decode()
        try:
            return zlib.decompress(content.removeprefix(_COMPRESSED)).decode()
        except zlib.error:
            raise ValueError("this is not what was compressed") from None

    def _seal_text(self, content: bytes, purpose: str) -> str:
        box = self.encrypt(content, purpose)
        return f"{_TEXT}{box.key_id}:{base64.b64encode(box.content).decode()}"

    def _unseal_text(self, sealed: str, purpose: str) -> bytes:
        key_id, _, content = sealed.removeprefix(_TEXT).partition(":")
        try:
            box = Box(key_id, base64.b64decode(content, validate=True))
        except (binascii.Error, ValueError):
            raise SealBrokenError(key_id) from None
        return self.decrypt(box, purpose)


NO_CIPHER = Cipher(())


def _compressed(text: str) -> bytes | None:
    """Compress text; None if it is short or very long."""
    content = text.encode()
    if not COMPRESSED_FROM <= len(content) <= COMPRESSED_TO:
        return None
    return _COMPRESSED + zlib.compress(content)


def _bound_to(key_id: str, purpose: str) -> bytes:
    return f"everloop 1\0{key_id}\0{purpose}".encode()


def _box_at(sealed: bytes, start: int) -> tuple[Box, int]:
    """Return the piece at a position and where it ends; a truncated one fails to decrypt."""
    length_at = start + _ID_LENGTH
    key_at = length_at + _CONTENT_LENGTH
    content_at = key_at + int.from_bytes(sealed[start:length_at], "big")
    end = content_at + int.from_bytes(sealed[length_at:key_at], "big")
    return Box(sealed[key_at:content_at].decode(errors="replace"), sealed[content_at:end]), end
