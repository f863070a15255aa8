"""Connects to judged addresses alone. By itself, because idle processes do without an HTTP client."""

from collections.abc import Iterable
from typing import cast

import httpcore

from everloop.runtime.outbound import WebhookPolicy


class JudgedBackend(httpcore.AsyncNetworkBackend):
    """Looks a name up, judges what it finds, and connects to just that: asked again, it may be another."""

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
