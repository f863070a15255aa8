"""The network of HTTP clients that may not connect everywhere. Idle processes load no HTTP client."""

from collections.abc import Iterable
from typing import cast

import httpcore

from everloop.runtime.outbound import WebhookPolicy


class OutboundBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, lets the policy check its addresses, and connects to one of them.

    A second look-up could give others (DNS rebinding).
    """

    def __init__(self, policy: WebhookPolicy, *, is_plain: bool, owner: str = "") -> None:
        self._policy = policy
        self._owner = owner
        self._is_plain = is_plain
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
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure
