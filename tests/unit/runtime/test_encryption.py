"""Encrypted content, its keys, and the files of keys."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from everloop.runtime.encryption.cipher import (
    COMPRESSED_TO,
    NO_CIPHER,
    NONCE_BYTES,
    Box,
    Cipher,
    Key,
    SealBrokenError,
    UnknownKeyError,
)
from everloop.runtime.encryption.key_file import EncryptionSettings, read_keys
from everloop.runtime.environment import explain
from tests.support.encryption import key_line, keyring

NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"
SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
PLAIN = b"the plan"


@pytest.mark.parametrize(
    ("secret", "bound_to", "sealed"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_encrypts_as_the_specification_says(secret: bytes, bound_to: bytes, sealed: str) -> None:
    """The examples of C2SP's XAES-256-GCM: other programs can decrypt our data."""
    key = Key("k", secret)
    assert key.seal(b"XAES-256-GCM", bound_to, NONCE) == NONCE + bytes.fromhex(sealed)
    assert key.unseal(NONCE + bytes.fromhex(sealed), bound_to) == b"XAES-256-GCM"


def test_nothing_of_the_content_or_of_the_key_is_left() -> None:
    """Two boxes of equal content differ, and the key itself does not open them: each has a derived one."""
    cipher = keyring("k1")
    one, other = cipher.encrypt(PLAIN, "task"), cipher.encrypt(PLAIN, "task")
    assert one.content != other.content
    assert PLAIN not in one.content
    with pytest.raises(Exception):  # noqa: B017, PT011 -- InvalidTag has no text
        AESGCM(b"k1".ljust(32, b".")).decrypt(one.content[12:24], one.content[24:], b"everloop 1\0k1\0task")


def test_repeatable_boxes_tell_equal_content_and_nothing_else() -> None:
    """Equal content of one purpose and key gives the same box; any other content gives another one."""
    cipher, rotated = keyring("k1"), keyring("k2", "k1")
    box = cipher.encrypt(PLAIN, "a", repeatable=True)
    assert cipher.encrypt(PLAIN, "a", repeatable=True) == box
    nonces = {
        each.content[:NONCE_BYTES]
        for each in (
            box,
            cipher.encrypt(PLAIN, "b", repeatable=True),
            cipher.encrypt(PLAIN + b".", "a", repeatable=True),
            rotated.encrypt(PLAIN, "a", repeatable=True),
        )
    }
    assert len(nonces) == 4


def test_what_was_encrypted_before_opens() -> None:
    """A box of an earlier version, which a change of the derivation, or of the bound data, would lose."""
    box = Box(
        "k1",
        bytes.fromhex(
            "5f00f42c3de1586b7b755a542f3b9e0cb9ffc63d999584d356c1412687d9d1f8a06364b4b185ac14f5a6212674d41ed0"
        ),
    )
    assert keyring("k2", "k1").decrypt(box, "a") == PLAIN
    assert keyring("k1").encrypt(PLAIN, "a", repeatable=True) == box


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    """After a rotation both old and new boxes are read; without the old key the error names its id."""
    old, rotated = keyring("k1"), keyring("k2", "k1")
    box = old.encrypt(PLAIN, "p")
    assert rotated.encrypt(PLAIN, "p").key_id == "k2"
    assert rotated.decrypt(box, "p") == PLAIN
    with pytest.raises(UnknownKeyError, match=r"'k1', which is not known here; add its line"):
        keyring("k2").decrypt(box, "p")


def _changed(box: Box) -> Box:
    return Box(box.key_id, box.content[:-1] + bytes([box.content[-1] ^ 1]))


@pytest.mark.parametrize(
    "box",
    [
        keyring("k1").encrypt(PLAIN, "another purpose"),
        Box("k2", keyring("k1", "k2").encrypt(PLAIN, "p").content),
        _changed(keyring("k1").encrypt(PLAIN, "p")),
        Box("k1", b""),
    ],
    ids=["another purpose", "another key id", "changed", "cut off"],
)
def test_what_was_changed_or_moved_does_not_open(box: Box) -> None:
    """A box opens with its key, for its purpose and unchanged; the error does not contain the content."""
    with pytest.raises(SealBrokenError, match=f"{box.key_id!r}: it was changed or moved") as caught:
        keyring("k1", "k2").decrypt(box, "p")
    assert PLAIN.decode() not in str(caught.value)


def test_a_changed_text_does_not_open() -> None:
    """Nor does one that is not base64: the error names that reason instead."""
    cipher = keyring("k1")
    with pytest.raises(SealBrokenError, match="'k1': it was changed or moved"):
        cipher.unseal_text(f"{cipher.seal_text('{}', 'p')}!", "p")


@pytest.mark.parametrize("cipher", [NO_CIPHER, keyring("k1")], ids=["off", "on"])
def test_content_kept_before_anything_was_encrypted_is_read(cipher: Cipher) -> None:
    """Plain texts and bytes are returned unchanged, with keys and without."""
    assert cipher.unseal(NO_CIPHER.seal(PLAIN, "p"), "p") == PLAIN
    assert cipher.unseal_text(NO_CIPHER.seal_text('{"a": 1}', "p"), "p") == '{"a": 1}'


def test_sealed_content_is_told_from_plain_without_keys() -> None:
    """A process without keys names the missing one, and does not return ciphertext as the content."""
    cipher = keyring("k1")
    with pytest.raises(UnknownKeyError, match="'k1'"):
        NO_CIPHER.unseal(cipher.seal(PLAIN, "p"), "p")
    with pytest.raises(UnknownKeyError, match="'k1'"):
        NO_CIPHER.unseal_text(cipher.seal_text("{}", "p"), "p")


LONG = '{"text": "zażółć gęślą jaźń"}' * 30


@pytest.mark.parametrize("cipher", [NO_CIPHER, keyring("k1")], ids=["off", "on"])
@pytest.mark.parametrize(
    "text",
    ["{}", '"z"', LONG, f'"{SECRET * 9}"', f'"{"x" * COMPRESSED_TO}"'],
    ids=["short", "z", "long", "dense", "very long"],
)
def test_what_is_packed_is_unpacked(cipher: Cipher, text: str) -> None:
    """At any length, with keys and without; long repetitive content is compressed to a third.

    Very long content stays uncompressed, so that nothing waits for its compression.
    """
    packed = cipher.pack(text, "p")
    kept = packed.decode(errors="surrogateescape") if isinstance(packed, bytes) else packed
    assert cipher.unpack(kept, "p") == text
    assert cipher.unpack(cipher.seal_text(text, "p"), "p") == text
    assert text is not LONG or len(packed) < len(LONG) / 3
    assert len(packed) > COMPRESSED_TO or len(text) <= COMPRESSED_TO


def test_what_nobody_has_packed_is_refused() -> None:
    """The error does not contain the content."""
    with pytest.raises(ValueError, match="not what was compressed") as caught:
        NO_CIPHER.unpack("zebra", "p")
    assert "zebra" not in str(caught.value)


def test_reads_a_file(tmp_path: Path) -> None:
    """Lines `key-id key`; empty ones and comments are skipped; spaces and tabs separate."""
    path = tmp_path / "keys"
    path.write_text(f"# new\n\n{key_line('k2')}\n  {key_line('k1').replace(' ', chr(9))}\n", encoding="utf-8")
    cipher = read_keys(path)
    assert cipher.encrypt(PLAIN, "p").key_id == "k2"
    assert cipher.decrypt(keyring("k1").encrypt(PLAIN, "p"), "p") == PLAIN


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the file has no key; expected `key-id key`"),
        (
            f"k1 {SECRET}\n{SECRET}\n",
            "line 2: expected `key-id key`, the key being 32 random bytes in base64",
        ),
        (f"k1 {SECRET[:-4]}\n", "line 1: expected `key-id key`"),
        (f"k1 {SECRET[:-1]}!\n", "line 1: expected `key-id key`"),
        (f"{SECRET} k1\n", "line 1: expected a key id of at most 64 letters"),
        (f"k1 {SECRET} k2\n", "line 1: expected `key-id key`"),
        (f"k1 {SECRET}\n\nk1 {SECRET}\n", "line 3: this key id is that of another line"),
        (b"\xff\xfe", "the file is no text"),
        (None, "the file cannot be read: No such file or directory"),
    ],
    ids=["empty", "no id", "short", "no base64", "turned round", "three", "twice", "binary", "missing"],
)
def test_a_wrong_file_is_told_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes | None, problem: str
) -> None:
    """One line names the variable, the line and the expected form, and shows nothing of the file."""
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    monkeypatch.setenv("EVERLOOP_ENCRYPTION_KEYS_FILE", str(path))
    with pytest.raises(ValidationError) as caught:
        EncryptionSettings()
    told = explain(caught.value)
    assert told.startswith(f"EVERLOOP_ENCRYPTION_KEYS_FILE: {problem}")
    assert SECRET[:10] not in f"{told} {caught.value}"
