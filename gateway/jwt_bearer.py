"""Callers who send a signed token: `Authorization: Bearer …` (RFC 6750, RFC 7519, RFC 8725)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jwt
from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.gateway.auth_schemes import CredentialsError, Scheme
from everloop.gateway.callers import Caller
from everloop.gateway.jwt_keys import UnknownKeyError, VerificationKeys
from everloop.gateway.owner_names import flaw_of_owner
from everloop.gateway.scopes import BEARER

LEEWAY = 30
"""Seconds that the issuer's clock and ours may differ."""

MAX_TOKEN_LENGTH = 16_384

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+) *", re.ASCII | re.IGNORECASE)
_IS_MEANT = re.compile(r"(?:^|,)\s*bearer(?:[\s,]|$)", re.ASCII | re.IGNORECASE)
"""Whether one of the headers that were joined speaks of a bearer, well or not."""

_FLAWS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
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
    """What a token has to say, and what is taken from it.

    `owner_claim` names whose tasks its holder sees; `claims` are those that tools are told of.
    """

    issuer: str
    audience: str
    owner_claim: str = "sub"
    claims: frozenset[str] = frozenset({"sub", "iss"})


class JwtScheme(Scheme):
    """Takes tokens of one issuer for one audience, as long as they hold.

    Scopes are those in `scope` (separated by spaces) or, without that claim, in `scp`; none there: no scopes.
    """

    name = BEARER
    challenge_name = "Bearer"
    request = "a token in the header Authorization: Bearer"

    def __init__(self, keys: VerificationKeys, rules: TokenRules) -> None:
        self._keys = keys
        self._rules = rules

    async def recognise(self, headers: Mapping[str, str], peer: str) -> Caller | None:
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
        if flaw := flaw_of_owner(owner):
            raise CredentialsError(f"the claim {self._rules.owner_claim} names nobody: {_unquoted(flaw)}")
        told = {name: value for name, value in claims.items() if name in self._rules.claims}
        subject = str(claims.get("sub") or owner)
        _check_printable([subject, told])
        return Caller(owner=owner, scheme=self.name, subject=subject, scopes=_scopes(claims), claims=told)

    def security_scheme(self) -> pb.SecurityScheme:
        return pb.SecurityScheme(
            http_auth_security_scheme=pb.HTTPAuthSecurityScheme(
                description=f"A token for the audience {self._rules.audience} from {self._rules.issuer}.",
                scheme="Bearer",
                bearer_format="JWT",
            )
        )

    async def _verified(self, token: str) -> Mapping[str, JsonValue]:
        """Return what the token says.

        Raises:
            CredentialsError: it must not be believed.
            UnavailableNowError: nobody can tell now.
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
        except UnknownKeyError:
            raise CredentialsError(
                "the token is signed with a key that its issuer does not publish"
            ) from None
        except jwt.PyJWTError as error:
            flaw = next((text for kind, text in _FLAWS if isinstance(error, kind)), _UNSIGNED)
            raise CredentialsError(flaw) from None
        except (ValueError, TypeError, RecursionError):  # what the library does not expect of a token
            raise CredentialsError(_UNSIGNED) from None
        return claims


def _scopes(claims: Mapping[str, JsonValue]) -> frozenset[str]:
    said = claims.get("scope", claims.get("scp", ""))
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    return frozenset(word for word in words if isinstance(word, str))


def _check_printable(told: JsonValue) -> None:
    """Refuse what Python reads as JSON, but nobody can write down: half characters, and no numbers."""
    try:
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise CredentialsError("the token has a claim that is no JSON") from None


def _unquoted(text: str) -> str:
    """Return a text that may stand between quotes in a challenge."""
    return text.replace('"', "'").replace("\\", "/")
