"""Bearer tokens: valid ones, their claims, and errors for the others."""

import base64
import hmac
import json
import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from everloop.gateway.auth.jwt import (
    LEEWAY,
    MAX_TOKEN_LENGTH,
    PUBLIC_ALGORITHMS,
    JwtScheme,
    OneKey,
    TokenRules,
    UnfitKeyError,
    public_key,
    read_public_key,
    read_secret,
)
from everloop.gateway.auth.schemes import CredentialsError
from everloop.gateway.context import Caller
from tests.support.servers.tokens import AUDIENCE, ISSUER, RSA, SigningKey

KEY = SigningKey()
RULES = TokenRules(ISSUER, AUDIENCE)


def scheme(key: SigningKey = KEY, rules: TokenRules = RULES) -> JwtScheme:
    return JwtScheme(OneKey(public_key(key.private.public_key(), PUBLIC_ALGORITHMS)), rules)


async def caller_with(token: str, of: JwtScheme | None = None) -> Caller:
    caller = await (of or scheme()).authenticate({"authorization": f"Bearer {token}"}, "")
    assert caller
    return caller


async def test_a_token_tells_owner_scopes_and_claims() -> None:
    """Only claims in the settings pass; the others do not reach a tool."""
    token = KEY.token(scope="tasks:read  agents:demo", email="a@example.org", jti="1")
    assert await caller_with(token) == Caller(
        owner="alice",
        scheme="bearer",
        subject="alice",
        scopes=frozenset({"tasks:read", "agents:demo"}),
        claims={"sub": "alice", "iss": ISSUER},
    )


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set[str]()),
        ({"scope": ""}, set[str]()),
        ({"scp": "tasks:read tasks:write"}, {"tasks:read", "tasks:write"}),
        ({"scp": ["tasks:read", 1, "other"]}, {"tasks:read", "other"}),
        ({"scope": ["tasks:read"]}, {"tasks:read"}),
        ({"scope": "tasks:read", "scp": ["tasks:write"]}, {"tasks:read"}),
        ({"scope": {"tasks:read": True}}, set[str]()),
    ],
)
async def test_scopes_stand_in_one_of_two_claims(claims: dict[str, object], scopes: set[str]) -> None:
    """A token without scopes has none, rather than all."""
    assert (await caller_with(KEY.token(header=None, **claims))).scopes == scopes


async def test_the_owner_may_stand_in_another_claim() -> None:
    """It then owns the tasks; `sub` still distinguishes callers. Other claims may pass."""
    rules = TokenRules(ISSUER, AUDIENCE, "tenant", frozenset({"tenant", "roles"}))
    caller = await caller_with(KEY.token(tenant="acme", roles=["a"]), scheme(rules=rules))
    assert (caller.owner, caller.subject) == ("acme", "alice")
    assert caller.claims == {"tenant": "acme", "roles": ["a"]}


@pytest.mark.parametrize("odd", [float("nan"), "\ud800"])
async def test_a_claim_that_no_store_could_keep_is_refused(odd: object) -> None:
    """Python reads it as JSON; a claim that does not pass does no harm."""
    token = KEY.token(odd=odd)
    assert await caller_with(token)
    with pytest.raises(CredentialsError, match="a claim that is no JSON"):
        await caller_with(token, scheme(rules=TokenRules(ISSUER, AUDIENCE, claims=frozenset({"odd"}))))


async def test_clocks_may_differ_a_little() -> None:
    """30 s in either direction."""
    now = int(time.time())
    assert await caller_with(KEY.token(exp=now - LEEWAY // 2, nbf=now + LEEWAY // 2))


@pytest.mark.parametrize(
    "key",
    [
        SigningKey("RS256", private=RSA),
        SigningKey("PS512", private=RSA),
        SigningKey("ES384", private=ec.generate_private_key(ec.SECP384R1())),
        SigningKey("EdDSA", private=ed25519.Ed25519PrivateKey.generate()),
    ],
    ids=lambda key: key.algorithm,
)
async def test_every_kind_of_public_key_checks_its_signatures(key: SigningKey) -> None:
    """RSA, elliptic curves and Ed25519."""
    assert (await caller_with(key.token(), scheme(key))).owner == "alice"


NOW = int(time.time())
"""The time of the tests' collection; they may run much later."""

A_DAY = 86_400


BAD_CLAIMS: dict[str, tuple[dict[str, object], str]] = {
    "expired": ({"exp": NOW - LEEWAY - 5}, "the token has expired"),
    "no expiry": ({"exp": None}, "the token lacks one of the claims"),
    "not yet": ({"nbf": NOW + A_DAY}, "the token is not valid yet"),
    "from the future": ({"iat": NOW + A_DAY}, "the token is not valid yet"),
    "other audience": ({"aud": "mail"}, "the token is for another audience"),
    "other audiences": ({"aud": ["mail", "everloop2"]}, "the token is for another audience"),
    "no audience": ({"aud": None}, "the token lacks one of the claims"),
    "other issuer": ({"iss": ISSUER + "/"}, "the token is from another issuer"),
    "no issuer": ({"iss": None}, "the token lacks one of the claims"),
    "no owner": ({"sub": None}, "the token lacks the claim sub"),
    "odd owner": ({"sub": 5}, "the token is no JWT"),
    "empty owner": ({"sub": ""}, "the claim sub names nobody: it is empty"),
    "anonymous": ({"sub": "anonymous"}, "the claim sub names nobody: 'anonymous' is who did not"),
    "Anonymous": ({"sub": "ANONYMOUS"}, "the claim sub names nobody"),
    "control character": ({"sub": "a\x1fb"}, "control characters"),
    "line break": ({"sub": "a\r\nX: y"}, "control characters"),
    "surrogate": ({"sub": "a\ud800"}, "names nobody"),
    "long owner": ({"sub": "ä" * 128}, "longer than 255 bytes"),
    "a space": ({"sub": "alice "}, "begins or ends with a space"),
    "odd expiry": ({"exp": "soon"}, "the token is no JWT"),
    "endless": ({"exp": 1e400}, "the token is no JWT"),
}


@pytest.mark.parametrize(("claims", "words"), BAD_CLAIMS.values(), ids=BAD_CLAIMS)
async def test_a_token_that_does_not_hold_here_is_refused(claims: dict[str, object], words: str) -> None:
    """The text has the reason, without quotes, which a challenge could not contain."""
    with pytest.raises(CredentialsError) as caught:
        await caller_with(KEY.token(header=None, **claims))
    assert words in str(caught.value)
    assert '"' not in str(caught.value)
    assert "\\" not in str(caught.value)


def forged(header: object, claims: object, signature: bytes = b"") -> str:
    parts = [json.dumps(part).encode() for part in (header, claims)] + [signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def signed_with_the_public_key() -> str:
    """Return a token whose secret is the public key."""
    content = forged({"alg": "HS256", "kid": KEY.kid}, GOOD).rpartition(".")[0]
    signature = hmac.digest(KEY.pem(), content.encode(), "sha256")
    return f"{content}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 3600}

FORGERIES = {
    "unsigned": forged({"alg": "none"}, GOOD),
    "unsigned, oddly": forged({"alg": "NoNe"}, GOOD),
    "no algorithm": forged({"typ": "JWT"}, GOOD),
    "odd algorithm": forged({"alg": ["ES256"]}, GOOD),
    "other key": SigningKey().token(),
    "public key as secret": signed_with_the_public_key(),
    "no signature": KEY.token().rpartition(".")[0] + ".",
    "changed claims": ".".join(
        [
            KEY.token().split(".")[0],
            forged({}, {**GOOD, "sub": "bob"}).split(".")[1],
            KEY.token().split(".")[2],
        ]
    ),
    "unknown extension": KEY.token(header={"crit": ["exp"], "exp": 1}),
    "no token": "secret",
    "dots": "..",
    "no object": forged([], GOOD),
    "own key in header": SigningKey().token(header={"jwk": {"kty": "oct", "k": "AAAA"}}),
    "odd kid": forged({"alg": "ES256", "kid": 5}, GOOD),
}


@pytest.mark.parametrize("token", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_token_is_refused(token: str) -> None:
    """For any header, only a signature by the key of the settings counts."""
    with pytest.raises(CredentialsError, match="the token is"):
        await caller_with(token)


async def test_a_secret_never_checks_what_is_not_signed_with_it(tmp_path: Path) -> None:
    """Nor is a key used for an algorithm that the settings do not name."""
    (tmp_path / "secret").write_bytes(b"s" * 64 + b"\n")
    secret = JwtScheme(OneKey(read_secret(tmp_path / "secret", ("HS256",))), RULES)
    assert (await caller_with(jwt.encode(GOOD, b"s" * 64, "HS256"), secret)).owner == "alice"
    for token in (jwt.encode(GOOD, b"s" * 64, "HS512"), forged({"alg": "none"}, GOOD), KEY.token()):
        with pytest.raises(CredentialsError, match="an algorithm that this server does not take"):
            await caller_with(token, secret)


async def test_an_endless_token_is_refused_unread() -> None:
    """No megabytes are parsed for a stranger."""
    with pytest.raises(CredentialsError, match="longer than"):
        await caller_with("a" * (MAX_TOKEN_LENGTH + 1))
    nested = "[" * 6000
    with pytest.raises(CredentialsError, match="no JWT"):
        await caller_with(base64.urlsafe_b64encode(nested.encode()).decode() + ".e30.e30")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    header=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("alg", "kid", "typ", "crit", "b64", "jwk"), JSON)
    )
    | JSON,
    claims=st.fixed_dictionaries({}, optional=dict.fromkeys(("iss", "aud", "sub", "exp", "nbf"), JSON))
    | JSON,
    signature=st.binary(max_size=70),
)
async def test_nothing_but_a_refusal_comes_of_a_made_up_token(
    header: object, claims: object, signature: bytes
) -> None:
    """No header and no claim causes another error."""
    with pytest.raises(CredentialsError):
        await caller_with(forged(header, claims, signature))


UNFIT = {
    "no PEM": (b"secret", "expected a public key in PEM"),
    "weak": (
        SigningKey("RS256", private=rsa.generate_private_key(65537, 1024)).pem(),  # noqa: S505 -- it is to be refused
        "1024 bits; expected 2048 or more",
    ),
    "odd curve": (
        SigningKey("ES256K", private=ec.generate_private_key(ec.SECP256K1())).pem(),
        "good for none of the algorithms",
    ),
}


@pytest.mark.parametrize(("content", "words"), UNFIT.values(), ids=UNFIT)
def test_an_unfit_key_is_refused_at_start(tmp_path: Path, content: bytes, words: str) -> None:
    """The text has the expected form, and nothing of the file."""
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UnfitKeyError, match=words) as caught:
        read_public_key(tmp_path / "key", PUBLIC_ALGORITHMS)
    assert "secret" not in str(caught.value)


def test_a_short_secret_is_refused_at_start(tmp_path: Path) -> None:
    """RFC 7518 §3.2: at least as long as the hash."""
    (tmp_path / "secret").write_bytes(b"s" * 47)
    with pytest.raises(UnfitKeyError, match="47 bytes; HS256, HS384 takes 48 or more"):
        read_secret(tmp_path / "secret", ("HS256", "HS384"))
    assert read_secret(tmp_path / "secret", ("HS256",)).algorithms == ("HS256",)
