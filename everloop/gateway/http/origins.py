"""Access of web pages to a gateway: its own, and those of origins in its settings.

A page of another origin reads a response only if the response allows it (CORS, Fetch Standard §3.2),
and needs permission to send more than a form could. With authentication that is enough: a page has no
credentials but those that it was given.

A gateway without authentication rejects other pages: any page in a browser may call whatever that
browser reaches, this machine included. Two signs reveal such a page. The host that it calls: after a
page has pointed its own name to our address (DNS rebinding), that name is in Host. And the browser's
report of a cross-site call, in the headers Sec-Fetch-Site (Fetch Metadata) and Origin (RFC 6454).
Programs send neither, and use our names.
"""

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from everloop.gateway.errors import RefusalError
from everloop.gateway.http.http_errors import CrossSiteError, MisdirectedError, refusal
from everloop.runtime.outbound.policy import is_loopback

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN = 100
"""Maximum characters of a wrong host in an error."""


ANY = "*"
"""In place of origins: pages of all."""

_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")

_SENT = (
    "A2A-Extensions",
    "A2A-Version",
    "Authorization",
    "Cache-Control",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "X-A2A-Extensions",
    "X-API-Key",
    "traceparent",
    "tracestate",
)
"""Request headers that pages may set: those that this server reads."""

_READ = (
    "A2A-Extensions",
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
    "X-A2A-Extensions",
)
"""Response headers that pages may read, besides those that are always readable."""


def page_rules(origins: Collection[str], hosts: Iterable[str], *, is_open: bool) -> list[Middleware]:
    """Return the middleware that checks calls of web pages, for a gateway of these `hosts`.

    `is_open`: the gateway has no authentication.
    """
    rules: list[Middleware] = []
    if origins:
        cors = Middleware(
            _Cors,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_SENT,
            allow_private_network=True,
            expose_headers=_READ,
        )
        rules.append(cors)
    # Inside, so that a page of ours may read any other rejection of its call.
    return [*rules, Middleware(OwnPagesOnly, hosts, origins)] if is_open else rules


class _Cors(CORSMiddleware):
    """Allows pages of other origins to call, never with cookies or certificates of their user.

    The codec endpoint, which shows the tasks of all owners, has its own list of origins.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_codec = scope["type"] == "http" and scope["path"].startswith("/codec/")
        await (self.app if is_codec else super().__call__)(scope, receive, send)


class OwnPagesOnly:
    """ASGI middleware that rejects calls from pages of other sites.

    `hosts`: the names of this server, besides localhost and IP addresses. A page at one of our IP
    addresses is ours. `origins`: pages of these are accepted too.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Collection[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset({"localhost", *(_plain(host) for host in hosts)}) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        await refusal(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusalError | None:
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
            "programs, and for pages of EVERLOOP_PUBLIC_URL and of EVERLOOP_CORS_ORIGINS"
        )

    def _is_of_ours(self, headers: Headers, host: str) -> bool:
        """Whether a request does not come from a page of another site."""
        origin = headers.get("origin")
        if origin and self._origins & {origin, ANY}:
            return True
        if headers.get("sec-fetch-site", "").strip().lower() == "cross-site":
            return False
        if origin is None:
            return True
        name = _host_of(origin)
        return bool(name) and (name == host or name in self._hosts or is_loopback(name))


def _host_of(url: str) -> str:
    """Return the normalized host of a URL; an impossible host for a malformed one."""
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
