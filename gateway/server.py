"""The HTTP server of a gateway process."""

import contextlib
import math
import socket
import sys
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from everloop.gateway.call_headers import MAX_HEAD_BYTES
from everloop.gateway.http_protocol import GatewayProtocol
from everloop.gateway.settings import GatewaySettings

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than usual proxies reuse it."""

STALLED_AFTER = 60
"""Seconds after which a client that takes nothing of what is sent to it loses its connection."""


class AddressInUseError(Exception):
    """The address cannot be listened on; the message names it and what to do."""


class GatewayServer(uvicorn.Server):
    """Serves the application; `stop` lets open streams end before the server does."""

    def __init__(self, app: Starlette, settings: GatewaySettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                http=GatewayProtocol,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # a client could say that it comes from a trusted proxy
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=math.ceil(settings.shutdown_grace),
            )
        )
        self._app = app

    def stop(self) -> None:
        """End open streams and waiting requests, then the server; the second call does not wait for them."""
        self._app.state.fanout.close()
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn's own handlers end the process by the signal before what we opened is closed.
        yield


def listen(settings: GatewaySettings, *, stalled_after: int = STALLED_AFTER) -> socket.socket:
    """Return a socket that listens on the configured address; it drops clients that are stalled.

    Raises:
        AddressInUseError: somebody else does, or it is not ours to use.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise AddressInUseError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
            "stop what listens there, or set EVERLOOP_HOST and EVERLOOP_PORT"
        ) from error
    # Connections inherit it. asyncio sets it only on sockets made with an explicit protocol number; without
    # it every answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":  # elsewhere nothing ends such a connection but its client
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_after * 1000)
    return listener
