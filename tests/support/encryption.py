"""Keys for tests, and files of keys."""

import base64
from pathlib import Path

from everloop.runtime.encryption.cipher import Cipher, Key
from tests.support.seeded_secrets import seed_secret


def key_line(key_id: str) -> str:
    """Return a line of a key file; the key is derived from its id."""
    return f"{key_id} {seed_secret(base64.b64encode(_secret(key_id)).decode())}"


def write_keys(path: Path, *key_ids: str) -> Path:
    """Write a key file; the first key encrypts."""
    path.write_text("".join(f"{key_line(key_id)}\n" for key_id in key_ids), encoding="utf-8")
    return path


def keyring(*key_ids: str) -> Cipher:
    """Return the keyring of such a file."""
    return Cipher([Key(key_id, _secret(key_id)) for key_id in key_ids])


def _secret(key_id: str) -> bytes:
    return key_id.encode().ljust(32, b".")[:32]


CIPHER = keyring("k1")
