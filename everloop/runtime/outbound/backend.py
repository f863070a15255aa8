"""Network backend of HTTP clients that may not connect everywhere. Loaded with the first HTTP client."""

import ssl
from collections.abc import Iterable
from typing import cast

import httpcore
import httpx

from everloop.runtime.outbound.policy import WebhookPolicy


class OutboundBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks its addresses against the policy, and connects to one of them.

    A second lookup could return other addresses (DNS rebinding). `most`: bytes read per connection, None
    for no limit.
    """

    def __init__(
        self, policy: WebhookPolicy, *, is_plain: bool, owner: str = "", most: int | None = None
    ) -> None:
        self._policy = policy
        self._owner = owner
        self._is_plain = is_plain
        self._most = most
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the interface's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._policy.addresses(host, port, is_plain=self._is_plain, owner=self._owner)
        failure: Exception = OSError("no address")
        for address in addresses:
            try:
                stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return stream if self._most is None else _BoundedStream(stream, self._most)
        raise failure


def public_transport(
    policy: WebhookPolicy, tls: ssl.SSLContext, *, is_plain: bool = False
) -> httpx.AsyncHTTPTransport:
    """Return what lets an `httpx.AsyncClient` connect to what the policy lets it. `is_plain`: without TLS."""
    transport = httpx.AsyncHTTPTransport(verify=tls)
    # httpx has no argument for it.
    backend = OutboundBackend(policy, is_plain=is_plain)
    transport._pool = httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=backend)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- as above
    return transport


class _BoundedStream(httpcore.AsyncNetworkStream):
    """A connection that is read up to `most` bytes."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, most: int) -> None:
        self._inner = inner
        self._left = most

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 -- the interface's
        if not self._left:
            raise httpcore.ReadError("the answer has more bytes than are read")
        piece = await self._inner.read(min(max_bytes, self._left), timeout)
        self._left -= len(piece)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the interface's
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the interface's
    ) -> httpcore.AsyncNetworkStream:
        inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return _BoundedStream(inner, self._left)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
