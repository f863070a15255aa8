"""How callers prove who they are: settings, and the authenticator that they make."""

from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, field_validator
from pydantic_settings import NoDecode

from everloop.gateway.auth.api_keys import ApiKeyFileError, ApiKeyScheme
from everloop.gateway.auth.schemes import Authenticator, Network, ProxyCertificateScheme, Scheme
from everloop.runtime.environment import WORDS, Settings, StartError
from everloop.runtime.outbound.policy import is_loopback

if TYPE_CHECKING:
    from everloop.gateway.auth.jwt import VerificationKeys

SchemeName = Literal["none", "api-key", "jwt", "mtls"]


class AuthSettingsError(StartError):
    """The settings of authentication do not fit together; the message names the variables and what to do."""


class ApiKeySettings(Settings):
    """Which API keys are good."""

    api_keys_file: Path | None = None
    """With `api-key`: the file that `everloop keys` writes. It is read again when it changes."""


def _networks(words: tuple[str, ...]) -> tuple[Network, ...]:
    try:
        networks = tuple(map(ip_network, words))
    except ValueError:
        raise ValueError("expected addresses or networks such as 10.0.0.7,10.1.0.0/16") from None
    if any(network.prefixlen == 0 for network in networks):
        raise ValueError("not everybody is a proxy; name the addresses of yours")
    return networks


class AuthSettings(ApiKeySettings):
    """Who gets in. Lists are separated by commas."""

    auth: Annotated[tuple[SchemeName, ...], NoDecode, WORDS] = ("none",)
    """How callers prove who they are: any of `api-key`, `jwt` and `mtls`, separated by commas and asked for
    in this order. `none` is refused where others than this machine can call. See
    docs/operation/security.md."""
    auth_allow_anonymous: bool = False
    """`true`, together with `none`: no authentication, wherever the gateway listens."""
    jwt_jwks_url: str = ""
    """With `jwt`: the https address of the keys. Set this one or one of the next two."""
    jwt_public_key_file: Path | None = None
    """With `jwt`: a file with a public key in PEM."""
    jwt_secret_file: Path | None = None
    """With `jwt`: a file with a secret."""
    jwt_issuer: str = ""
    """With `jwt`, required: what `iss` of tokens has to say."""
    jwt_audience: str = ""
    """With `jwt`, required: what `aud` of tokens has to say."""
    jwt_algorithms: Annotated[tuple[str, ...], NoDecode, WORDS] = ()
    """With `jwt`: which signatures are taken, separated by commas. Unset: all of public keys, `HS256` with a
    secret."""
    jwt_owner_claim: str = "sub"
    """With `jwt`: the claim that names the owner of tasks."""
    jwt_claims: Annotated[tuple[str, ...], NoDecode, WORDS] = ("sub", "iss")
    """With `jwt`: the claims that tools get, separated by commas. Temporal keeps them."""
    mtls_header: str = "X-Client-Subject"
    """With `mtls`: the header with the subject of the verified certificate. `X-Forwarded-Client-Cert` is read
    as Envoy writes it."""
    mtls_proxies: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_networks), WORDS] = ()
    """With `mtls`, required: addresses and networks of the proxies whose header counts, separated by
    commas."""

    @field_validator("auth")
    @classmethod
    def _names_schemes(cls, names: tuple[SchemeName, ...]) -> tuple[SchemeName, ...]:
        if not names or ("none" in names and len(names) > 1):
            raise ValueError("expected none, or any of api-key, jwt and mtls, separated by commas")
        return names

    @field_validator("jwt_jwks_url")
    @classmethod
    def _is_safe(cls, url: str) -> str:
        parts = urlsplit(url)
        if (
            not url
            or parts.scheme == "https"
            or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        ):
            return url
        raise ValueError("expected https:// (http:// of this machine only); correct it")


def make_authenticator(settings: AuthSettings, host: str) -> Authenticator:
    """Return who decides who gets in; `host` is what the gateway listens on.

    Raises:
        AuthSettingsError: settings are missing or do not fit, or strangers could do everything.
    """
    _check_use(settings)
    if settings.auth == ("none",):
        _check_anonymous(settings, host)
        return Authenticator()
    makers: Mapping[str, Callable[[AuthSettings], Scheme]] = {
        "api-key": _api_keys,
        "jwt": _jwt,
        "mtls": _mtls,
    }
    return Authenticator([makers[name](settings) for name in dict.fromkeys(settings.auth)])


def _check_use(settings: AuthSettings) -> None:
    """Refuse settings of a scheme that is off: their author believes that the server is guarded."""
    owners = {"api_keys": "api-key", "jwt": "jwt", "mtls": "mtls"}
    for field in sorted(settings.model_fields_set):
        scheme = next((scheme for prefix, scheme in owners.items() if field.startswith(prefix)), None)
        if scheme and scheme not in settings.auth:
            raise AuthSettingsError(
                f"{_variable(field)} is set, but EVERLOOP_AUTH does not name {scheme}; add it, or unset this"
            )


def _check_anonymous(settings: AuthSettings, host: str) -> None:
    is_forced = settings.auth_allow_anonymous and "auth" in settings.model_fields_set
    if not is_loopback(host) and not is_forced:
        raise AuthSettingsError(
            f"EVERLOOP_HOST is {host!r}: whoever reaches it could use all agents. Set EVERLOOP_AUTH to "
            "api-key, jwt or mtls, or EVERLOOP_HOST to 127.0.0.1; only where something else keeps strangers "
            "out, set EVERLOOP_AUTH=none and EVERLOOP_AUTH_ALLOW_ANONYMOUS=true"
        )


def _api_keys(settings: AuthSettings) -> Scheme:
    if settings.api_keys_file is None:
        raise AuthSettingsError("EVERLOOP_API_KEYS_FILE is not set, but EVERLOOP_AUTH names api-key; set it")
    try:
        return ApiKeyScheme(settings.api_keys_file)
    except ApiKeyFileError as error:
        raise AuthSettingsError(f"EVERLOOP_API_KEYS_FILE: {error}") from None


def _jwt(settings: AuthSettings) -> Scheme:
    from everloop.gateway.auth.jwt import JwtScheme, TokenRules  # noqa: PLC0415 -- 9 MiB, for who takes tokens

    for field in ("jwt_issuer", "jwt_audience"):
        if not getattr(settings, field):
            raise AuthSettingsError(
                f"{_variable(field)} is not set, but EVERLOOP_AUTH names jwt; set it: tokens made for others "
                "are not for this server"
            )
    rules = TokenRules(
        settings.jwt_issuer, settings.jwt_audience, settings.jwt_owner_claim, frozenset(settings.jwt_claims)
    )
    return JwtScheme(_keys(settings), rules)


def _keys(settings: AuthSettings) -> "VerificationKeys":
    from everloop.gateway.auth import jwt  # noqa: PLC0415 -- as above

    sources = (settings.jwt_jwks_url, settings.jwt_public_key_file, settings.jwt_secret_file)
    if sum(map(bool, sources)) != 1:
        raise AuthSettingsError(
            "EVERLOOP_AUTH names jwt: set one of EVERLOOP_JWT_JWKS_URL, EVERLOOP_JWT_PUBLIC_KEY_FILE and "
            "EVERLOOP_JWT_SECRET_FILE"
        )
    possible = jwt.SECRET_ALGORITHMS if settings.jwt_secret_file else jwt.PUBLIC_ALGORITHMS
    algorithms = settings.jwt_algorithms or (("HS256",) if settings.jwt_secret_file else possible)
    if unfit := [each for each in algorithms if each not in possible]:
        raise AuthSettingsError(
            f"EVERLOOP_JWT_ALGORITHMS: {unfit[0]} is none of {', '.join(possible)}; correct it"
        )
    try:
        if settings.jwt_secret_file:
            return jwt.OneKey(jwt.read_secret(settings.jwt_secret_file, algorithms))
        if settings.jwt_public_key_file:
            return jwt.OneKey(jwt.read_public_key(settings.jwt_public_key_file, algorithms))
    except jwt.UnfitKeyError as error:
        variable = "EVERLOOP_JWT_SECRET_FILE" if settings.jwt_secret_file else "EVERLOOP_JWT_PUBLIC_KEY_FILE"
        raise AuthSettingsError(f"{variable}: {error}") from None
    return jwt.Jwks(settings.jwt_jwks_url, algorithms)


def _mtls(settings: AuthSettings) -> Scheme:
    if not settings.mtls_proxies:
        raise AuthSettingsError(
            "EVERLOOP_MTLS_PROXIES is not set, but EVERLOOP_AUTH names mtls; set the addresses of the "
            "proxies whose headers count"
        )
    return ProxyCertificateScheme(settings.mtls_header, settings.mtls_proxies)


def _variable(field: str) -> str:
    return f"EVERLOOP_{field.upper()}"
