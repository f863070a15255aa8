"""HTTP client of agents: credentials, certificates, and the proxies of the environment."""

import os
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from everloop.client.errors import NO_HEADER, InvalidError
from everloop.client.transport import CONNECT_TIMEOUT
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION

THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Addresses that bypass the proxies of the environment, which are for other machines."""

Token = str | Callable[[], str]
"""A bearer token, or a function that returns the current one."""


class HttpClient(httpx.AsyncClient):
    """Ignores entries of NO_PROXY that httpx cannot read, as curl, Go and httpx2 do.

    Platforms put IPv6 networks in it, with which httpx fails to create any client.
    """

    def _get_proxy_map(
        self,
        proxy: Any,  # noqa: ANN401 -- httpx hides its type
        allow_env_proxies: bool,  # noqa: FBT001 -- httpx's
    ) -> dict[str, httpx.Proxy | None]:
        found = super()._get_proxy_map(proxy, allow_env_proxies)
        return {pattern: each for pattern, each in found.items() if _is_address(pattern)}


def _is_address(pattern: str) -> bool:
    try:
        httpx.URL(pattern)
    except httpx.InvalidURL:
        return False
    return True


class Credentials(httpx.Auth):
    """Adds the credentials to requests to the named server, and to no other."""

    def __init__(self, origin: str, *, api_key: str, token: Token, hosts: Sequence[str]) -> None:
        self.header = "X-API-Key"
        self._origin = origin
        self._api_key = api_key
        self._token = token
        self._hosts = frozenset(hosts)

    def __bool__(self) -> bool:
        return bool(self._api_key or self._token)

    def trusts(self, url: str) -> bool:
        """Whether the credentials may be sent to an address."""
        return origin_of(url) == self._origin or (urlsplit(url).hostname or "") in self._hosts

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if self.trusts(str(request.url)):
            try:
                self._show(request)
            except UnicodeEncodeError:
                raise InvalidError(f"{request.url} cannot be asked: {NO_HEADER}") from None
        yield request

    def _show(self, request: httpx.Request) -> None:
        if self._api_key:
            request.headers[self.header] = self._api_key
        if self._token:
            token = self._token if isinstance(self._token, str) else self._token()
            request.headers["Authorization"] = f"Bearer {token.strip().removeprefix('Bearer ')}"


def http_client(
    credentials: Credentials,
    *,
    cert: tuple[str | Path, str | Path] | None,
    ca: str | Path | None,
    headers: Mapping[str, str],
    timeout: float,
) -> httpx.AsyncClient:
    """Return the HTTP client.

    Raises:
        InvalidError: a certificate, a header, or a proxy of the environment cannot be used.
    """
    try:
        context = _own_tls(cert, ca) if cert or ca else system_tls()
    except (OSError, ssl.SSLError) as error:
        raise InvalidError(f"cert= or ca= cannot be used: {error}; give paths of PEM files") from None
    try:
        return HttpClient(
            auth=credentials,
            verify=context,
            headers={"A2A-Version": "1.0", "A2A-Extensions": EVENTS_EXTENSION, **headers},
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
            mounts=dict.fromkeys(THIS_MACHINE),
        )
    except UnicodeEncodeError:
        raise InvalidError("headers= has a value that is no text in UTF-8; give another") from None
    except (ValueError, httpx.InvalidURL):
        raise InvalidError(
            "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is no address of a proxy; give one such as "
            "http://proxy.example:3128 or socks5://proxy.example:1080, or unset it"
        ) from None


@cache
def system_tls() -> ssl.SSLContext:
    """Return a context with the system's certificates. Loading them takes longer than most calls.

    Raises:
        InvalidError: the certificates that the environment names cannot be read.
    """
    return _load_system_tls()


def _own_tls(cert: tuple[str | Path, str | Path] | None, ca: str | Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca)) if ca else _load_system_tls()
    if cert:
        context.load_cert_chain(str(cert[0]), str(cert[1]))
    return context


def _load_system_tls() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        named = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
        raise InvalidError(
            f"SSL_CERT_FILE or SSL_CERT_DIR names certificates that cannot be read ({named}: {error}); "
            "correct or unset it"
        ) from None


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
