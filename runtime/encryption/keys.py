"""The keys of a deployment: XAES-256-GCM (C2SP), which is AES-256-GCM with a key derived for each message.

Nonces have 192 bits, so that one key lasts for more messages than anybody sends; those of plain AES-256-GCM
may be drawn at random only 2³² times for each key (NIST SP 800-38D §8.3).
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import field_validator

from everloop.runtime.encryption.cipher import NO_CIPHER, Box, Cipher, SealBrokenError, UnknownKeyError
from everloop.runtime.settings import Settings, warn_of_readers

KEY_BYTES = 32
NONCE_BYTES = 24

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_TAG_BYTES = 16
_DERIVED = 12
"""Bytes of a nonce that the key of a message is derived from; the rest is the nonce of AES-256-GCM."""

_EXPECTED = "expected `key-id key`, the key being 32 random bytes in base64 (openssl rand -base64 32)"


class KeyFileError(ValueError):
    """The file of keys is wrong; the message names the line, and never what stands in it."""


class Key:
    """One key with its id.

    Raises:
        ValueError: it has not 32 bytes.
    """

    def __init__(self, key_id: str, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"expected {KEY_BYTES} bytes")
        self.id = key_id
        # Blocks of a key derivation, none of them content; each is encrypted by itself, which is what ECB is.
        aes = BlockCipher(algorithms.AES(secret), modes.ECB())  # noqa: S305 -- see above
        self._aes, self._lock = aes.encryptor(), Lock()
        self._mask = _doubled(self._blocks(bytes(16)))
        self._nonces = hmac.digest(secret, b"everloop nonces of repeatable encryption", "sha256")

    def seal(self, content: bytes, bound_to: bytes, nonce: bytes | None = None) -> bytes:
        """Return nonce and encrypted content; without `nonce` a random one."""
        nonce = nonce or os.urandom(NONCE_BYTES)
        return nonce + self._derived(nonce).encrypt(nonce[_DERIVED:], content, bound_to)

    def unseal(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Return the content.

        Raises:
            InvalidTag: it is not what was sealed, or bound to something else.
        """
        if len(sealed) < NONCE_BYTES + _TAG_BYTES:
            raise InvalidTag
        nonce = sealed[:NONCE_BYTES]
        return self._derived(nonce).decrypt(nonce[_DERIVED:], sealed[NONCE_BYTES:], bound_to)

    def nonce_of(self, content: bytes, bound_to: bytes) -> bytes:
        """Return the nonce that belongs to this content; only who has the key can tell."""
        digest = hmac.new(self._nonces, len(bound_to).to_bytes(8, "big") + bound_to, hashlib.sha256)
        digest.update(content)
        return digest.digest()[:NONCE_BYTES]

    def _derived(self, nonce: bytes) -> AESGCM:
        """CMAC in counter mode (NIST SP 800-108r1), as XAES-256-GCM uses it."""
        inputs = b"".join(bytes([0, number]) + b"X\0" + nonce[:_DERIVED] for number in (1, 2))
        return AESGCM(self._blocks(_xor(inputs, self._mask * 2)))

    def _blocks(self, blocks: bytes) -> bytes:
        with self._lock:  # large content is encrypted in threads
            return self._aes.update(blocks)


class Keyring(Cipher):
    """The first key encrypts, all of them decrypt."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._first = keys[0]
        self._keys = {key.id: key for key in keys}

    @property
    def is_on(self) -> bool:
        return True

    def encrypt(self, content: bytes, purpose: str, *, repeatable: bool = False) -> Box:
        key, bound_to = self._first, _bound_to(self._first.id, purpose)
        nonce = key.nonce_of(content, bound_to) if repeatable else None
        return Box(key.id, key.seal(content, bound_to, nonce))

    def decrypt(self, box: Box, purpose: str) -> bytes:
        key = self._keys.get(box.key_id)
        if key is None:
            raise UnknownKeyError(box.key_id)
        try:
            return key.unseal(box.content, _bound_to(key.id, purpose))
        except InvalidTag:
            raise SealBrokenError(key.id) from None


def read_keys(path: Path) -> Keyring:
    """Read a file of keys: a line `key-id base64` for each; empty lines and comments, after #, are none.

    Raises:
        KeyFileError: it cannot be read, or one of its lines is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        warn_of_readers(path)
    except OSError as error:
        raise KeyFileError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"the file is no text; {_EXPECTED} on each line") from None
    keys = list(_keys_of(lines))
    if not keys:
        raise KeyFileError(f"the file has no key; {_EXPECTED} on a line")
    return Keyring(keys)


def _keys_of(lines: Iterable[str]) -> Iterable[Key]:
    known: set[str] = set()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = _key_of(number, words)
        if key.id in known:
            raise KeyFileError(f"line {number}: this key id is that of another line; give each key its own")
        known.add(key.id)
        yield key


def _key_of(number: int, words: Sequence[str]) -> Key:
    if len(words) != 2:  # noqa: PLR2004 -- an id and a key
        raise KeyFileError(f"line {number}: {_EXPECTED}")
    key_id, written = words
    if not _ID.fullmatch(key_id):  # not shown: whoever mistakes the order has put a key here
        raise KeyFileError(f"line {number}: expected a key id of at most 64 letters, digits, dots, _ and -")
    try:
        return Key(key_id, base64.b64decode(written, validate=True))
    except (binascii.Error, ValueError):
        raise KeyFileError(f"line {number}: {_EXPECTED}") from None


def _bound_to(key_id: str, purpose: str) -> bytes:
    return f"everloop 1\0{key_id}\0{purpose}".encode()


def _doubled(block: bytes) -> bytes:
    """Multiply by x in the field of CMAC (NIST SP 800-38B §6.1)."""
    number = int.from_bytes(block, "big") << 1
    carry = number >> 128
    return ((number ^ (0x87 * carry)) & ((1 << 128) - 1)).to_bytes(16, "big")


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


# Whether a process encrypts, and with which keys.


class EncryptionSettings(Settings):
    """The same for all workers, gateways and tools of a deployment.

    EVERLOOP_ENCRYPTION_KEYS_FILE: a file with a line `key-id base64-of-32-bytes` for each key; the first one
    encrypts, all of them decrypt. It is read at start. Default: none; then nothing is encrypted.
    """

    encryption_keys_file: str = ""

    @field_validator("encryption_keys_file")
    @classmethod
    def validate_keys(cls, path: str) -> str:
        _read(path)  # a KeyFileError is a ValueError
        return path

    @property
    def cipher(self) -> Cipher:
        """What encrypts and decrypts.

        Raises:
            KeyFileError: the file has changed since the settings were read, and is wrong now.
        """
        return _read(self.encryption_keys_file)


def _read(path: str) -> Cipher:
    return read_keys(Path(path)) if path else NO_CIPHER
