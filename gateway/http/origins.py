"""Keeps web pages away from a gateway that lets everybody in.

A page that somebody reads in a browser can call whatever that browser reaches, this machine included. Two
things give it away. The name that it calls: after a page has pointed its own name to our address (DNS
rebinding), that name stands in Host. And the browser's word that the call is from another site, in the
headers Sec-Fetch-Site (Fetch Metadata) and Origin (RFC 6454). Programs send neither, and use our names.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from a2a.utils.error_handlers import build_rest_error_payload
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from everloop.gateway.errors import RefusalError
from everloop.gateway.http.errors import CrossSiteError, MisdirectedError, status_of
from everloop.runtime.outbound import is_loopback

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN = 100
"""How many characters of a wrong name are repeated."""


class OwnPagesOnly:
    """An ASGI application before another one: it refuses calls that a page of another site makes.

    `hosts`: the names that we are called by, besides localhost and addresses. A page cannot be of an address
    that is ours, unless it is ours.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset({"localhost", *(_plain(host) for host in hosts)}) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._flaw(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        answer = JSONResponse(build_rest_error_payload(error), status_of(error) or 400)
        await answer(scope, receive, send)

    def _flaw(self, scope: Scope) -> RefusalError | None:
        headers = Headers(scope=scope)
        host = _host_of(f"//{headers.get('host', '')}")
        if host and host not in self._hosts and not _is_address(host):
            return MisdirectedError(
                f"this server is not called {host[:_SHOWN]!r}: without authentication it answers to "
                "localhost, its addresses and the host of EVERLOOP_PUBLIC_URL; call one of these, or set that"
            )
        if scope["method"] in _READING or self._is_of_ours(headers, host):
            return None
        return CrossSiteError(
            "a web page of another site may not change anything here: without authentication this is for "
            "programs, and for pages of EVERLOOP_PUBLIC_URL"
        )

    def _is_of_ours(self, headers: Headers, host: str) -> bool:
        """Whether a request is not from a page of another site."""
        if headers.get("sec-fetch-site", "").strip().lower() == "cross-site":
            return False
        origin = headers.get("origin")
        if origin is None:
            return True
        name = _host_of(origin)
        return bool(name) and (name == host or name in self._hosts or is_loopback(name))


def _host_of(url: str) -> str:
    """Return the host of an address, as it is compared; of what is no address something that is no host."""
    try:
        return _plain(urlsplit(url).hostname or "")
    except ValueError:
        return "?"


def _plain(host: str) -> str:
    return host.strip().lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
