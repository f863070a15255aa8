"""Keys that signatures of tokens are checked with, and for which algorithms each is good.

Which algorithm a token names decides nothing by itself: a public key must not be taken for a secret, nor a
token without any signature for a signed one (RFC 8725 §2.1, §3.1).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from everloop.runtime.secrecy import warn_of_readers

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
MIN_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""RFC 7518 §3.2: a secret is at least as long as the hash."""

MIN_RSA_BITS = 2048

_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class UnfitKeyError(Exception):
    """This is no key to check tokens with; the message says why and what was expected."""


class UnknownKeyError(Exception):
    """No key that we know has signed the token."""


@dataclass(frozen=True)
class VerificationKey:
    """A key, and the algorithms that it is good for, of those which the settings allow."""

    key: PublicKey | bytes = field(repr=False)
    algorithms: tuple[str, ...]


class VerificationKeys(ABC):
    """Knows with which key a token may have been signed."""

    @abstractmethod
    async def find(self, key_id: str | None) -> VerificationKey:
        """Return the key that a token names, None: it names none.

        Raises:
            UnknownKeyError: there is no such key.
            UnavailableNowError: nobody can tell now.
        """


class OneKey(VerificationKeys):
    """Checks all tokens with the same key, whatever they call it."""

    def __init__(self, key: VerificationKey) -> None:
        self._key = key

    async def find(self, key_id: str | None) -> VerificationKey:
        return self._key


def public_key(key: object, allowed: Collection[str], named: str | None = None) -> VerificationKey:
    """Return a public key with its algorithms; `named` is the only one that it says it is for.

    Raises:
        UnfitKeyError: it is too weak, or good for nothing that is allowed.
    """
    if not isinstance(key, PublicKey):
        raise UnfitKeyError("expected a public key: RSA, EC on a NIST curve, or Ed25519")
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise UnfitKeyError(f"the RSA key has {key.key_size} bits; expected {MIN_RSA_BITS} or more")
    fit = tuple(each for each in _algorithms_of(key) if each in allowed and named in {None, each})
    if not fit:
        raise UnfitKeyError(f"the key is good for none of the algorithms {', '.join(sorted(allowed))}")
    return VerificationKey(key, fit)


def read_public_key(path: Path, allowed: Collection[str]) -> VerificationKey:
    """Return the public key in a PEM file.

    Raises:
        UnfitKeyError: it cannot be read, or used.
    """
    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        raise UnfitKeyError(
            "expected a public key in PEM, which begins with -----BEGIN PUBLIC KEY-----"
        ) from None
    return public_key(key, allowed)


def read_secret(path: Path, allowed: Collection[str]) -> VerificationKey:
    """Return the secret that is all of a file but white space at its ends.

    Raises:
        UnfitKeyError: it cannot be read, or is too short.
    """
    secret = _read(path).strip()
    warn_of_readers(path)
    fit = tuple(each for each in SECRET_ALGORITHMS if each in allowed)
    needed = max(MIN_SECRET_BYTES[each] for each in fit)
    if len(secret) < needed:
        raise UnfitKeyError(f"the secret has {len(secret)} bytes; {', '.join(fit)} takes {needed} or more")
    return VerificationKey(secret, fit)


def _algorithms_of(key: PublicKey) -> tuple[str, ...]:
    if isinstance(key, RSAPublicKey):
        return tuple(each for each in PUBLIC_ALGORITHMS if each[:2] in {"RS", "PS"})
    if isinstance(key, EllipticCurvePublicKey):
        algorithm = _CURVES.get(key.curve.name)
        return (algorithm,) if algorithm else ()
    return ("EdDSA",)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnfitKeyError(f"cannot read {path}: {error.strerror}") from None
