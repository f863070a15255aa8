"""The key file of a deployment, and the setting that turns encryption on."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import field_validator

from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher, Key
from everloop.runtime.environment import Settings, warn_of_readers

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

_EXPECTED = "expected `key-id key`, the key being 32 random bytes in base64 (openssl rand -base64 32)"


class KeyFileError(ValueError):
    """The key file is invalid; the message names the line and never its content."""


def read_keys(path: Path) -> Cipher:
    """Read a key file: a line `key-id base64` per key; empty lines and lines that begin with # are skipped.

    Raises:
        KeyFileError: the file cannot be read, or a line is invalid.
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
    return Cipher(keys)


def _keys_of(lines: Iterable[str]) -> Iterable[Key]:
    ids: set[str] = set()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = _key_of(number, words)
        if key.id in ids:
            raise KeyFileError(f"line {number}: this key id is that of another line; give each key its own")
        ids.add(key.id)
        yield key


def _key_of(number: int, words: Sequence[str]) -> Key:
    if len(words) != 2:  # noqa: PLR2004 -- an id and a key
        raise KeyFileError(f"line {number}: {_EXPECTED}")
    key_id, written = words
    if not _ID.fullmatch(key_id):  # not shown: in the wrong order it is a key
        raise KeyFileError(f"line {number}: expected a key id of at most 64 letters, digits, dots, _ and -")
    try:
        return Key(key_id, base64.b64decode(written, validate=True))
    except (binascii.Error, ValueError):
        raise KeyFileError(f"line {number}: {_EXPECTED}") from None


# Whether a process encrypts, and with which keys.


class EncryptionSettings(Settings):
    """Encryption settings, the same for all workers, gateways and tools of a deployment."""

    encryption_keys_file: str = ""
    """A file of keys that encrypt what Temporal, Redis and blobs hold: a line `key-id base64-of-32-bytes` for
    each. The first one encrypts, all of them decrypt. Unset: nothing is encrypted. See
    docs/operation/encryption.md."""

    @field_validator("encryption_keys_file")
    @classmethod
    def validate_keys(cls, path: str) -> str:
        _read(path)  # a KeyFileError is a ValueError
        return path

    @property
    def cipher(self) -> Cipher:
        """The cipher of these keys.

        Raises:
            KeyFileError: the file has changed since the settings were read, and is invalid now.
        """
        return _read(self.encryption_keys_file)


def _read(path: str) -> Cipher:
    return read_keys(Path(path)) if path else NO_CIPHER
