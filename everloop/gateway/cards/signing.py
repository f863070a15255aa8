"""Signatures of agent cards: JSON Web Signatures with the gateway's own key (A2A 1.0 §8.4, RFC 7515)."""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue

from everloop.runtime.environment import Settings, StartError, warn_of_readers

if TYPE_CHECKING:
    from a2a.utils.signing import ProtectedHeader

JWKS_PATH = ".well-known/jwks.json"
"""Path of the public keys, below the gateway's address."""

EXPECTED = (
    "expected: a private key in PEM format, without a password: EC P-256, RSA of 2048 bits or more, Ed25519"
)

SMALLEST_RSA = 2048
"""Bits (RFC 7518 §3.3)."""

_IDENTITY = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""The members of a public key in its thumbprint (RFC 7638 §3.2, RFC 8037 §2)."""


class CardKeyError(StartError):
    """The key for agent cards is invalid; the message names the setting and the reason."""


class CardKeySettings(Settings):
    """Settings of card signatures."""

    card_key: Path | None = None
    """A private key (PEM; EC P-256, RSA, Ed25519) that signs agent cards. Unset: they are not signed. See
    docs/protocol/agent-cards.md#signatures."""
    card_key_id: str = ""
    """The id of that key for clients. Unset: its thumbprint (RFC 7638)."""


@dataclass(frozen=True)
class CardKey:
    """A key that signs cards. `public` is its public half as a JSON Web Key (RFC 7517)."""

    pem: bytes
    algorithm: str
    public: Mapping[str, JsonValue]

    @property
    def key_id(self) -> str:
        return str(self.public["kid"])

    @property
    def jwks(self) -> dict[str, JsonValue]:
        """The set of public keys that clients verify signatures with."""
        return {"keys": [dict(self.public)]}

    def sign(self, card: pb.AgentCard, url: str) -> pb.AgentCard:
        """Add signatures to a card; `url` is the gateway's, with a slash at its end.

        One covers the SDKs' form of the card, in which empty fields, such as the scopes of a scheme,
        are missing.
        """
        from a2a.utils.signing import create_agent_card_signer  # noqa: PLC0415 -- see `_public_half`

        content = MessageToDict(card)
        card = create_agent_card_signer(self.pem, self._header(url))(card)
        signature = self.signature_of(content, url)
        card.signatures.add(protected=signature["protected"], signature=signature["signature"])
        return card

    def signature_of(self, content: Mapping[str, JsonValue], url: str) -> dict[str, str]:
        """Return a signature over JSON without its signatures, in the form of RFC 8785."""
        from jwt import api_jws  # noqa: PLC0415 -- see `_public_half`

        signed = {name: value for name, value in content.items() if name != "signatures"}
        # Names in cards are ASCII, and there are no numbers: sorted JSON is the canonical form.
        payload = json.dumps(signed, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        token = api_jws.encode(payload.encode(), self.pem, self.algorithm, dict(self._header(url)))
        protected, _, signature = token.split(".")
        return {"protected": protected, "signature": signature}

    def _header(self, url: str) -> "ProtectedHeader":
        return {"alg": self.algorithm, "kid": self.key_id, "jku": f"{url}{JWKS_PATH}", "typ": "JOSE"}


def load_card_key(settings: CardKeySettings) -> CardKey | None:
    """Load the key that signs cards; None if they are unsigned.

    Raises:
        CardKeyError: the file cannot be read, or has no key of a supported kind.
    """
    if settings.card_key is None:
        return None
    try:
        pem = settings.card_key.read_bytes()
        warn_of_readers(settings.card_key)
        algorithm, public = _public_half(pem)
    except OSError as error:
        raise CardKeyError(f"EVERLOOP_CARD_KEY: {settings.card_key}: {error.strerror}; {EXPECTED}") from None
    except (ValueError, TypeError) as error:
        raise CardKeyError(f"EVERLOOP_CARD_KEY: {settings.card_key} is no such key; {EXPECTED}") from error
    key_id = settings.card_key_id or _thumbprint(public)
    return CardKey(pem, algorithm, {**public, "kid": key_id, "use": "sig", "alg": algorithm})


def _public_half(pem: bytes) -> tuple[str, dict[str, JsonValue]]:
    """Return the algorithm of a key, and its public half as a JSON Web Key."""
    # 9 MiB with the libraries behind them, for gateways that sign.
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415 -- as above
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 -- as above
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm  # noqa: PLC0415 -- as above

    key = load_pem_private_key(pem, password=None)
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return "ES256", dict(ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA", dict(OKPAlgorithm.to_jwk(key.public_key(), as_dict=True))
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= SMALLEST_RSA:
        public = dict(RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))
        return "RS256", {name: value for name, value in public.items() if name != "key_ops"}
    raise ValueError("another kind of key")


def _thumbprint(public: Mapping[str, JsonValue]) -> str:
    members = {name: public[name] for name in _IDENTITY[str(public["kty"])]}
    digest = hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
