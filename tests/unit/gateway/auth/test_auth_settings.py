"""Settings of authentication: conflicts, and accepted callers."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from everloop.gateway.auth.api_keys import add_key, new_key
from everloop.gateway.auth.auth_settings import AuthSettings, AuthSettingsError, make_authenticator
from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.context import Caller
from everloop.gateway.errors import UnauthenticatedError
from everloop.runtime.environment import explain
from everloop.runtime.outbound.policy import is_loopback
from tests.support.servers.tokens import AUDIENCE, ISSUER, SigningKey

KEY = SigningKey()
JWT: Mapping[str, str] = {"auth": "jwt", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
LOOPBACK = "127.0.0.1"


def authenticator(host: str = LOOPBACK, **settings: str) -> Authenticator:
    return make_authenticator(AuthSettings.model_validate(settings), host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_this_machine_everybody_may_do_everything(host: str) -> None:
    """Without any settings, as in a first run."""
    assert is_loopback(host)
    assert authenticator(host).is_open


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.1", "::ffff:10.0.0.1", "gateway", "127.0.0.1.example"]
)
def test_elsewhere_that_has_to_be_said_twice(host: str) -> None:
    """EVERLOOP_AUTH=none and a permission for strangers; one of them is not enough."""
    for settings in ({}, {"auth": "none"}, {"auth_allow_anonymous": "true"}):
        with pytest.raises(
            AuthSettingsError, match=r"whoever reaches it could use all agents. Set EVERLOOP_AUTH"
        ):
            authenticator(host, **settings)
    assert authenticator(host, auth="none", auth_allow_anonymous="true").is_open


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "unknown scheme": ({"auth": "basic"}, "AUTH: Input should be 'none', 'api-key', 'jwt' or 'mtls'"),
    "none and another": ({"auth": "none,jwt"}, "AUTH: expected none, or any of"),
    "nothing": ({"auth": " , "}, "AUTH: expected none, or any of"),
    "unsafe keys": ({"jwt_jwks_url": "http://issuer.example/keys"}, "JWT_JWKS_URL: expected https://"),
    "no URL": ({"jwt_jwks_url": "issuer"}, "JWT_JWKS_URL: expected https://"),
    "no network": ({"mtls_proxies": "proxy"}, "MTLS_PROXIES: expected addresses or networks"),
    "half a network": ({"mtls_proxies": "10.0.0.1/8"}, "MTLS_PROXIES: expected addresses or networks"),
    "everybody": ({"mtls_proxies": "10.0.0.1,0.0.0.0/0"}, "MTLS_PROXIES: not everybody is a proxy"),
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_named(settings: dict[str, str], words: str) -> None:
    """By its variable, with the expected form."""
    with pytest.raises(ValidationError) as caught:
        AuthSettings.model_validate(settings)
    assert explain(caught.value).startswith(f"EVERLOOP_{words}")


NO_KEYS = (
    "API_KEYS_FILE: cannot read the API keys in /no where/keys: No such file or directory; "
    "make it with: everloop keys add OWNER --file '/no where/keys'"
)
NO_KEY = "JWT_PUBLIC_KEY_FILE: cannot read /nowhere/key: No such file or directory"
ONE_OF = "JWT_JWKS_URL, EVERLOOP_JWT_PUBLIC_KEY_FILE and EVERLOOP_JWT_SECRET_FILE"
UNFIT: dict[str, tuple[dict[str, str], str]] = {
    "no key file": ({"auth": "api-key"}, "API_KEYS_FILE is not set"),
    "missing key file": ({"auth": "api-key", "api_keys_file": "/no where/keys"}, NO_KEYS),
    "unused key file": ({"api_keys_file": "keys"}, "API_KEYS_FILE is set, but EVERLOOP_AUTH does not name"),
    "unused issuer": ({"auth": "mtls", "jwt_issuer": "x"}, "JWT_ISSUER is set, but EVERLOOP_AUTH"),
    "unused proxies": ({"mtls_proxies": "10.0.0.1"}, "MTLS_PROXIES is set, but EVERLOOP_AUTH"),
    "no issuer": ({"auth": "jwt", "jwt_audience": "x"}, "JWT_ISSUER is not set"),
    "no audience": ({"auth": "jwt", "jwt_issuer": "x"}, "JWT_AUDIENCE is not set"),
    "no key": ({**JWT}, ONE_OF),
    "two keys": ({**JWT, "jwt_secret_file": "a", "jwt_public_key_file": "b"}, ONE_OF),
    "missing public key": ({**JWT, "jwt_public_key_file": "/nowhere/key"}, NO_KEY),
    "missing secret": ({**JWT, "jwt_secret_file": "/nowhere/key"}, "JWT_SECRET_FILE: cannot read"),
    "no signature": (
        {**JWT, "jwt_jwks_url": "https://x/", "jwt_algorithms": "RS256,none"},
        "JWT_ALGORITHMS: none is none of RS256",
    ),
    "public key as secret": (
        {**JWT, "jwt_public_key_file": "k", "jwt_algorithms": "HS256"},
        "JWT_ALGORITHMS: HS256 is none of RS256",
    ),
    "secret as public key": (
        {**JWT, "jwt_secret_file": "k", "jwt_algorithms": "RS256"},
        "JWT_ALGORITHMS: RS256 is none of HS256",
    ),
    "no proxies": ({"auth": "mtls"}, "MTLS_PROXIES is not set"),
}


@pytest.mark.parametrize(("settings", "words"), UNFIT.values(), ids=UNFIT)
def test_settings_that_do_not_fit_are_told_at_start(settings: dict[str, str], words: str) -> None:
    """In one line that names the variables; a configured guard is never silently ignored."""
    with pytest.raises(AuthSettingsError) as caught:
        authenticator(**settings)
    assert f"EVERLOOP_{words}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def all_three(tmp_path: Path) -> tuple[Authenticator, str]:
    """An authenticator with all schemes, and an API key of acme."""
    key, line = new_key("acme", ["tasks:read"], None)
    add_key(tmp_path / "keys", line)
    made = authenticator(
        "0.0.0.0",
        **{**JWT, "auth": "api-key,jwt,mtls"},
        api_keys_file=str(tmp_path / "keys"),
        jwt_public_key_file=str(KEY.write(tmp_path / "key")),
        mtls_proxies=LOOPBACK,
    )
    return made, key


async def test_any_of_several_schemes_is_enough(all_three: tuple[Authenticator, str]) -> None:
    """Each with its own owner; the result names the scheme."""
    authenticator, key = all_three

    async def caller(**headers: str) -> Caller:
        return await authenticator.authenticate(
            {k.replace("_", "-"): v for k, v in headers.items()}, LOOPBACK
        )

    assert (await caller(x_api_key=key)).owner == "acme"
    assert (await caller(authorization=f"Bearer {KEY.token()}")).owner == "alice"
    assert (await caller(x_client_subject="CN=a")).owner == "CN=a"
    assert (await caller(x_client_subject="CN=a", x_api_key=key)).scheme == "apiKey"


async def test_what_is_wrong_is_refused_whatever_else_is_right(all_three: tuple[Authenticator, str]) -> None:
    """The error is in the challenge of its scheme (RFC 6750 §3.1), and repeats nothing of the request."""
    authenticator, _ = all_three
    expired = KEY.token(exp=1)
    with pytest.raises(UnauthenticatedError, match=r"^the token has expired$") as caught:
        await authenticator.authenticate(
            {"authorization": f"Bearer {expired}", "x-client-subject": "CN=a"}, LOOPBACK
        )
    assert (
        'Bearer realm="everloop", error="invalid_token", error_description="the token has expired", MutualTLS'
        in caught.value.challenge
    )
    assert expired not in caught.value.challenge
    with pytest.raises(UnauthenticatedError, match="does not know the API key"):
        await authenticator.authenticate(
            {"x-api-key": "wrong", "authorization": f"Bearer {KEY.token()}"}, LOOPBACK
        )


def test_cards_say_how_to_prove_who_one_is(all_three: tuple[Authenticator, str]) -> None:
    """A2A 1.0 §4.5: header and kind of each scheme."""
    schemes = all_three[0].security_schemes()
    assert list(schemes) == ["apiKey", "bearer", "mutualTLS"]
    assert schemes["apiKey"].api_key_security_scheme.location == "header"
    assert schemes["apiKey"].api_key_security_scheme.name == "X-API-Key"
    assert schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
    assert schemes["bearer"].http_auth_security_scheme.bearer_format == "JWT"
    assert schemes["mutualTLS"].HasField("mtls_security_scheme")
