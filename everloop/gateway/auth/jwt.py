"""Authentication by signed tokens: `Authorization: Bearer …` (RFC 6750, RFC 7519, RFC 8725)."""

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2
import jwt
import structlog
from a2a.types import a2a_pb2 as pb
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK, PyJWTError
from pydantic import JsonValue

from everloop.gateway.auth.schemes import CredentialsError, Scheme
from everloop.gateway.auth.scopes import BEARER
from everloop.gateway.context import Caller, problem_of_owner
from everloop.gateway.errors import UnavailableNowError
from everloop.runtime.environment import warn_of_readers
from everloop.runtime.outbound.bounds import AnswerTooLargeError
from everloop.runtime.outbound.response_bounds import UNCOMPRESSED, bounding

# Keys that signatures of tokens are checked with, and for which algorithms each is good.
#
# Which algorithm a token names decides nothing by itself: a public key must not be taken for a secret, nor a
# token without any signature for a signed one (RFC 8725 §2.1, §3.1).

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
    """The key cannot verify tokens; the message gives the reason and the expectation."""


class UnknownSigningKeyError(Exception):
    """No configured key has signed the token."""


@dataclass(frozen=True)
class VerificationKey:
    """A key, and the allowed algorithms that fit it."""

    key: PublicKey | bytes = field(repr=False)
    algorithms: tuple[str, ...]


class VerificationKeys(ABC):
    """Finds the key of a token."""

    @abstractmethod
    async def find(self, key_id: str | None) -> VerificationKey:
        """Return the key that a token names; None: it names none.

        Raises:
            UnknownKeyError: the key does not exist.
            UnavailableNowError: the issuer does not answer.
        """


class OneKey(VerificationKeys):
    """Verifies all tokens with one key, whatever id they name."""

    def __init__(self, key: VerificationKey) -> None:
        self._key = key

    async def find(self, key_id: str | None) -> VerificationKey:
        return self._key


def public_key(key: object, allowed: Collection[str], named: str | None = None) -> VerificationKey:
    """Return a public key with its algorithms; `named` is the only one it declares.

    Raises:
        UnfitKeyError: it is too weak, or fits no allowed algorithm.
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
    """Read a public key from a PEM file.

    Raises:
        UnfitKeyError: it cannot be read or used.
    """
    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        raise UnfitKeyError(
            "expected a public key in PEM, which begins with -----BEGIN PUBLIC KEY-----"
        ) from None
    return public_key(key, allowed)


def read_secret(path: Path, allowed: Collection[str]) -> VerificationKey:
    """Read a secret from a file, without surrounding white space.

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


LEEWAY = 30
"""Allowed clock skew in seconds."""

MAX_TOKEN_LENGTH = 16_384

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+) *", re.ASCII | re.IGNORECASE)
_IS_MEANT = re.compile(r"(?:^|,)\s*bearer(?:[\s,]|$)", re.ASCII | re.IGNORECASE)
"""Matches if one of the joined headers names the scheme Bearer, well-formed or not."""

_PROBLEMS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is from another issuer"),
    (jwt.InvalidAlgorithmError, "the token is signed with an algorithm that this server does not take"),
    (jwt.MissingRequiredClaimError, "the token lacks one of the claims exp, iss and aud"),
)
_UNSIGNED = "the token is no JWT, or its signature is wrong"


@dataclass(frozen=True)
class TokenRules:
    """Required claims of a token, and those that are used.

    `owner_claim` names the owner of the caller's tasks; `claims` are passed to tools.
    """

    issuer: str
    audience: str
    owner_claim: str = "sub"
    claims: frozenset[str] = frozenset({"sub", "iss"})


class JwtScheme(Scheme):
    """Accepts valid tokens of one issuer for one audience.

    Scopes are those in `scope` (separated by spaces) or, without that claim, in `scp`; neither: no
    scopes.
    """

    name = BEARER
    challenge_name = "Bearer"
    request = "a token in the header Authorization: Bearer"

    def __init__(self, keys: VerificationKeys, rules: TokenRules) -> None:
        self._keys = keys
        self._rules = rules

    async def authenticate(self, headers: Mapping[str, str], peer: str) -> Caller | None:
        sent = headers.get("authorization", "")
        if not _IS_MEANT.search(sent):
            return None
        found = _BEARER.fullmatch(sent)
        if found is None:
            raise CredentialsError("the header Authorization has to be Bearer and one token, and come once")
        claims = await self._verified(found.group(1))
        owner = claims.get(self._rules.owner_claim)
        if not isinstance(owner, str):
            raise CredentialsError(f"the token lacks the claim {self._rules.owner_claim}, a text")
        if problem := problem_of_owner(owner):
            raise CredentialsError(f"the claim {self._rules.owner_claim} names nobody: {_unquoted(problem)}")
        own_claims = {name: value for name, value in claims.items() if name in self._rules.claims}
        subject = str(claims.get("sub") or owner)
        _check_printable([subject, own_claims])
        return Caller(
            owner=owner, scheme=self.name, subject=subject, scopes=_scopes(claims), claims=own_claims
        )

    def security_scheme(self) -> pb.SecurityScheme:
        return pb.SecurityScheme(
            http_auth_security_scheme=pb.HTTPAuthSecurityScheme(
                description=f"A token for the audience {self._rules.audience} from {self._rules.issuer}.",
                scheme="Bearer",
                bearer_format="JWT",
            )
        )

    async def _verified(self, token: str) -> Mapping[str, JsonValue]:
        """Return the claims of a token.

        Raises:
            CredentialsError: the token is invalid.
            UnavailableNowError: the issuer does not answer.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise CredentialsError(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
        try:
            key = await self._keys.find(cast("str | None", jwt.get_unverified_header(token).get("kid")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except UnknownSigningKeyError:
            raise CredentialsError(
                "the token is signed with a key that its issuer does not publish"
            ) from None
        except jwt.PyJWTError as error:
            problem = next((text for kind, text in _PROBLEMS if isinstance(error, kind)), _UNSIGNED)
            raise CredentialsError(problem) from None
        except (ValueError, TypeError, RecursionError):  # what the library does not expect of a token
            raise CredentialsError(_UNSIGNED) from None
        return claims


def _scopes(claims: Mapping[str, JsonValue]) -> frozenset[str]:
    scopes = claims.get("scope", claims.get("scp", ""))
    words = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    return frozenset(word for word in words if isinstance(word, str))


def _check_printable(value: JsonValue) -> None:
    """Reject values that Python reads as JSON but cannot write: lone surrogates and non-finite numbers."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise CredentialsError("the token has a claim that is no JSON") from None


def _unquoted(text: str) -> str:
    """Return a text that may stand between quotes in a challenge."""
    return text.replace('"', "'").replace("\\", "/")


# The keys that an issuer of tokens publishes (RFC 7517), fetched when a token needs them.
#
# They are requested again every ten minutes, so that a withdrawn key expires, and at once when a token
# names an unknown key, but at most every 30 s, whatever strangers send. While the issuer does not answer,
# its last keys stay valid for an hour, and no caller waits for it.

REFETCH_PAUSE = 30.0
"""Minimum seconds between two requests to the issuer."""

FRESH = 600.0
"""Seconds until the keys are requested again."""

CACHE_SECONDS = 3600.0
"""Seconds that keys stay valid while the issuer does not answer."""

REFETCH_WAIT = 0.5
"""Seconds that callers with a cached key wait for a fresh key set. Thus a withdrawn key is refused at
once, and a hanging issuer delays callers only shortly."""

FETCH_TIMEOUT = 5.0
RETRY_AFTER = 5

MAX_KEY_SET = 1_048_576
"""Bytes."""

MAX_KEY_VALUES = 100_000

_UNAVAILABLE = (
    "the server that tells whose tokens are good does not answer; send the same request again later"
)

_log = structlog.get_logger()


class Jwks(VerificationKeys):
    """The keys at a URL. `clock` counts seconds."""

    def __init__(
        self, url: str, algorithms: Collection[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._algorithms = algorithms
        self._clock = clock
        self._keys: Mapping[str, VerificationKey] = {}
        self._told_at: float | None = None
        self._requested_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> VerificationKey:
        key = self._cached(key_id)
        if key is None or self._age > CACHE_SECONDS:
            await self._fetch_unless_just_done()
        elif self._age > FRESH:
            # After a failure no caller waits: requests go on in the background until one succeeds.
            await self._fetch_unless_just_done(REFETCH_WAIT if self._has_answered else 0)
        key = self._cached(key_id)
        if key and self._age <= CACHE_SECONDS:
            return key
        if not self._has_answered:  # it may be a new one
            raise UnavailableNowError(_UNAVAILABLE, retry_after=RETRY_AFTER)
        raise UnknownSigningKeyError

    @property
    def _has_answered(self) -> bool:
        """True if the issuer answered the last request."""
        return self._told_at is not None and self._told_at == self._requested_at

    @property
    def _age(self) -> float:
        return float("inf") if self._told_at is None else self._clock() - self._told_at

    def _cached(self, key_id: str | None) -> VerificationKey | None:
        if key_id is None:  # RFC 7517 §4.5: where there is one key only, it needs no name
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _fetch_unless_just_done(self, seconds: float | None = None) -> None:
        """Request the keys, once for all who wait; a caller that leaves does not cancel it for the others.

        `seconds`: timeout of this caller; None: until the issuer answers or its timeout is over.
        """
        if self._fetching is None or self._fetching.done():
            now = self._clock()
            if self._requested_at is not None and now - self._requested_at < REFETCH_PAUSE:
                return
            self._requested_at = now
            self._fetching = asyncio.create_task(self._fetch(now))
        await asyncio.wait({self._fetching}, timeout=seconds)

    async def _fetch(self, now: float) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT), self._http_client() as http:
                answer = (await http.get(self._url)).raise_for_status()
            keys = _read_keys(answer.json(), self._algorithms)
        except (httpx2.HTTPError, AnswerTooLargeError, TimeoutError, ValueError, RecursionError) as error:
            _log.warning("keys of tokens cannot be fetched", error=type(error).__name__)
            return
        self._keys, self._told_at = keys, now
        _log.info("keys of tokens fetched", keys=len(keys))

    @staticmethod
    def _http_client() -> httpx2.AsyncClient:
        bound = bounding(limit=MAX_KEY_SET, values=MAX_KEY_VALUES)
        return httpx2.AsyncClient(
            timeout=FETCH_TIMEOUT, headers=UNCOMPRESSED, event_hooks={"response": [bound]}
        )


def _read_keys(answer: object, algorithms: Collection[str]) -> dict[str, VerificationKey]:
    """Return the usable keys of a key set; an issuer may list others too.

    Raises:
        ValueError: the response is not a key set.
    """
    listed = cast("dict[str, object]", answer).get("keys") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no set of keys")  # noqa: TRY004 -- it is what the server sent, not our caller
    listed = cast("list[object]", listed)
    keys: dict[str, VerificationKey] = {}
    entries = [cast("dict[str, Any]", entry) for entry in listed if isinstance(entry, dict)]
    for entry in entries:
        if key := _read_key(entry, algorithms):
            keys[str(entry.get("kid", ""))] = key
    return keys


def _read_key(entry: dict[str, Any], algorithms: Collection[str]) -> VerificationKey | None:
    if entry.get("use", "sig") != "sig":
        return None
    try:
        return public_key(PyJWK(entry).key, algorithms, entry.get("alg"))
    except (PyJWTError, UnfitKeyError, ValueError, TypeError, KeyError):
        return None
