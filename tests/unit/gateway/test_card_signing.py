"""The key that signs agent cards."""

from pathlib import Path

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt import PyJWK
from jwt.utils import base64url_decode

from everloop.gateway.cards.signing import CardKey, CardKeyError, CardKeySettings, load_card_key

URL = "https://agents.example/"
PRIVATE = (Encoding.PEM, PrivateFormat.PKCS8)

KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "RS256": rsa.generate_private_key(65_537, 2_048),
}


def key_file(directory: Path, content: bytes) -> CardKeySettings:
    path = directory / "card-key.pem"
    path.write_bytes(content)
    return CardKeySettings(card_key=path)


def loaded(directory: Path, algorithm: str) -> CardKey:
    key = load_card_key(key_file(directory, KEYS[algorithm].private_bytes(*PRIVATE, NoEncryption())))
    assert key
    return key


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_signed_card_is_verified_with_the_public_key(tmp_path: Path, algorithm: str) -> None:
    """By the SDK's own verifier; a card that was changed is not what was signed (A2A 1.0 §8.4)."""
    key = loaded(tmp_path, algorithm)
    card = key.sign(pb.AgentCard(name="Writer", description="Schreibt schöne Wörter."), URL)
    verify = create_signature_verifier(lambda _kid, _jku: PyJWK(dict(key.public)), [algorithm])

    verify(card)
    card.name = "Somebody else"
    with pytest.raises(InvalidSignaturesError):
        verify(card)


@pytest.mark.parametrize("algorithm", KEYS)
def test_nothing_private_is_in_the_key_set(tmp_path: Path, algorithm: str) -> None:
    """None of the members that RFC 7518 and RFC 8037 have for private keys."""
    public = loaded(tmp_path, algorithm).public

    assert not {"d", "p", "q", "dp", "dq", "qi", "k", "oth"} & set(public)


def test_the_thumbprint_is_that_of_the_standard(tmp_path: Path) -> None:
    """For the key of RFC 8037, appendix A.3."""
    seed = base64url_decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
    content = ed25519.Ed25519PrivateKey.from_private_bytes(seed).private_bytes(*PRIVATE, NoEncryption())

    key = load_card_key(key_file(tmp_path, content))

    assert key
    assert key.key_id == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


WRONG = {
    "no key": b"-----BEGIN NONSENSE-----\n",
    "not even text": b"\xff\x00",
    "a public key": KEYS["ES256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    "a password": KEYS["ES256"].private_bytes(*PRIVATE, BestAvailableEncryption(b"secret")),
    "another curve": ec.generate_private_key(ec.SECP384R1()).private_bytes(*PRIVATE, NoEncryption()),
    "a short key": rsa.generate_private_key(65_537, 1_024).private_bytes(*PRIVATE, NoEncryption()),  # noqa: S505 -- to be refused
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_key_that_cannot_sign_is_named(tmp_path: Path, content: bytes) -> None:
    """In one line: the setting, the file, and what was expected."""
    with pytest.raises(CardKeyError) as caught:
        load_card_key(key_file(tmp_path, content))

    message = str(caught.value)
    assert message.startswith("EVERLOOP_CARD_KEY: ")
    assert "card-key.pem" in message
    assert "expected: a private key in PEM format" in message
    assert "\n" not in message


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    with pytest.raises(CardKeyError, match=r"EVERLOOP_CARD_KEY: .*none\.pem: No such file"):
        load_card_key(CardKeySettings(card_key=tmp_path / "none.pem"))
