"""How content is kept secret from who can read the servers that hold it.

EncryptionError
├── UnknownKeyError     it was encrypted by a key that this process does not have
└── SealBrokenError     it is not what was encrypted, or stands in the wrong place
"""

import base64
import binascii
from abc import ABC, abstractmethod
from dataclasses import dataclass

_ID_LENGTH, _CONTENT_LENGTH = 1, 4
"""Bytes that tell how long the id of a key is, and how long what follows it."""

_TEXT = "sealed:"
"""Stands before encrypted texts. No JSON begins so."""


class EncryptionError(OSError):
    """Content cannot be decrypted here. Clients may read this text: it names neither content nor key.

    It is an OSError so that it counts as a store that is away: what stands there cannot be had now, and can
    once the key is there.
    """


class UnknownKeyError(EncryptionError):
    """It was encrypted by a key that this process does not have."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"this was encrypted with the key {key_id!r}, which is not known here; add its line to the file "
            "that EVERLOOP_ENCRYPTION_KEYS_FILE names, and start this process again"
        )


class SealBrokenError(EncryptionError):
    """It is not what was encrypted, or stands in the wrong place."""

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


class Cipher(ABC):
    """Encrypts and decrypts. `purpose` says what content is, and whose: one box does not pass for another."""

    @property
    @abstractmethod
    def is_on(self) -> bool:
        """Whether anything is encrypted."""

    @abstractmethod
    def encrypt(self, content: bytes, purpose: str, *, repeatable: bool = False) -> Box:
        """Return content encrypted.

        `repeatable`: equal content of one purpose gives equal boxes, as long as the key is the same; whoever
        sees two boxes then knows whether they hold the same.
        """

    @abstractmethod
    def decrypt(self, box: Box, purpose: str) -> bytes:
        """Return the content of a box.

        Raises:
            UnknownKeyError: its key is not known.
            SealBrokenError: it was not made for this purpose, or was changed.
        """

    def seal(self, content: bytes, purpose: str) -> bytes:
        """Return what is kept of a piece of content: a header names its key, or none, and its length.

        Pieces may be appended to each other.
        """
        box = self.encrypt(content, purpose) if self.is_on else Box("", content)
        key_id = box.key_id.encode()
        lengths = (len(key_id).to_bytes(_ID_LENGTH, "big"), len(box.content).to_bytes(_CONTENT_LENGTH, "big"))
        return b"".join((*lengths, key_id, box.content))

    def unseal(self, kept: bytes, purpose: str) -> bytes:
        """Return the content of the pieces that are kept, by different keys or by none.

        Raises:
            EncryptionError: one cannot be decrypted.
        """
        pieces: list[bytes] = []
        start = 0
        while start < len(kept):
            box, start = _box_at(kept, start)
            pieces.append(self.decrypt(box, purpose) if box.key_id else box.content)
        return b"".join(pieces)

    def seal_text(self, text: str, purpose: str) -> str:
        """Return what is kept of JSON: the JSON itself if nothing is encrypted."""
        if not self.is_on:
            return text
        box = self.encrypt(text.encode(), purpose)
        return f"{_TEXT}{box.key_id}:{base64.b64encode(box.content).decode()}"

    def unseal_text(self, kept: str, purpose: str) -> str:
        """Return the JSON of what is kept; as it is, if it was kept before anything was encrypted.

        Raises:
            EncryptionError: it cannot be decrypted.
        """
        if not kept.startswith(_TEXT):
            return kept
        key_id, _, content = kept.removeprefix(_TEXT).partition(":")
        try:
            box = Box(key_id, base64.b64decode(content, validate=True))
        except (binascii.Error, ValueError):
            raise SealBrokenError(key_id) from None
        return self.decrypt(box, purpose).decode()


class NoCipher(Cipher):
    """Encrypts nothing, and knows no key."""

    @property
    def is_on(self) -> bool:
        return False

    def encrypt(self, content: bytes, purpose: str, *, repeatable: bool = False) -> Box:
        raise RuntimeError("there is no key to encrypt with; ask is_on first")

    def decrypt(self, box: Box, purpose: str) -> bytes:
        raise UnknownKeyError(box.key_id)


NO_CIPHER = NoCipher()


def _box_at(kept: bytes, start: int) -> tuple[Box, int]:
    """Return the piece that begins there, and where it ends; what is cut off does not decrypt."""
    length_at = start + _ID_LENGTH
    key_at = length_at + _CONTENT_LENGTH
    content_at = key_at + int.from_bytes(kept[start:length_at], "big")
    end = content_at + int.from_bytes(kept[length_at:key_at], "big")
    return Box(kept[key_at:content_at].decode(errors="replace"), kept[content_at:end]), end
