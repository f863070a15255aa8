"""The HTTP server of a gateway process."""

import asyncio
import contextlib
import json
import math
import socket
import sys
from collections.abc import Generator
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from everloop.gateway.context import MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES
from everloop.gateway.settings import GatewaySettings
from everloop.runtime.environment import StartError

# HTTP/1.1 connections: bounded request heads, in bounded time, a bounded number of bytes at a time.
#
# Uvicorn responds 400 to every head that it cannot read, and waits for one without limit. It processes all
# that a socket has at once, some 250 KB: of tiny headers or chunks that takes a third of a second.

HEAD_SECONDS = 30.0
"""Seconds in which the head of a request has to arrive, from its first byte or the start of the
connection. The same for the rest of a body that arrives after its response."""

LINGER = 2.0
"""Seconds that a client gets to read the reason for the end of its connection."""

TURN_BYTES = 16_384
"""Bytes that are read of one connection before the others get their turn."""

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: ("INVALID_ARGUMENT", "this is no HTTP/1.1 request"),
    HTTPStatus.REQUEST_URI_TOO_LONG: (
        "INVALID_ARGUMENT",
        f"the address is longer than the {MAX_TARGET_BYTES} bytes that this server reads; send a shorter one",
    ),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "INVALID_ARGUMENT",
        f"address and headers are over {MAX_HEAD_BYTES} bytes, or headers more than {MAX_HEADERS}; send less",
    ),
}
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})
_FRAMING = 4
"""Bytes of a header besides its name and value."""


class _Connection(h11.Connection):
    """Connection of h11 that rejects too large heads also when they arrive all at once.

    It also rejects heads with two lengths: a proxy that uses the other one would read part of a body as
    another client's request (RFC 9112 §6.3).
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and len(event.target) > MAX_TARGET_BYTES:
            raise h11.RemoteProtocolError(
                "the address is too long", error_status_hint=HTTPStatus.REQUEST_URI_TOO_LONG
            )
        if isinstance(event, h11.Request) and _is_too_much(event):
            raise h11.RemoteProtocolError(
                "too many headers, or too large", error_status_hint=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            )
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("two lengths of one body")
        return event


def _is_too_much(head: h11.Request) -> bool:
    if len(head.headers) > MAX_HEADERS:
        return True
    lines = sum(len(name) + len(value) + _FRAMING for name, value in head.headers)
    return len(head.method) + len(head.target) + lines > MAX_HEAD_BYTES


class GatewayProtocol(H11Protocol):
    """Protocol of Uvicorn that drops connections without a complete head, or the rest of a body, in time.

    Endpoints limit the time of a body that they read. An unread body, of an unauthenticated client,
    would hold its connection for as long as a byte of it arrives now and then.
    """

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None
    _awaited: object = None
    _is_refused = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Connection(h11.SERVER, config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Send the error in the form of the bindings. Uvicorn calls this while it handles the error."""
        failure = sys.exception()
        hint = failure.error_status_hint if isinstance(failure, h11.RemoteProtocolError) else 0
        status = HTTPStatus(hint) if hint in _REFUSALS else HTTPStatus.BAD_REQUEST
        grpc_status, text = _REFUSALS[status]
        error = {"code": status.value, "status": grpc_status, "message": text}
        body = json.dumps({"error": error}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        # Closed at once, with unread input, a connection loses the data that it has sent (RFC 9112 §9.6).
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)

    def read_on(self) -> None:
        """Resume reading from the socket, unless earlier data still wait for the application."""
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def _watch(self) -> None:
        """Limit the time for the head of a request, or for the rest of an answered one. Uvicorn does not."""
        awaited = self.conn.their_state if self._is_owed() else None
        if awaited is not self._awaited:
            self._unwatch()
        if awaited and self._deadline is None:
            self._awaited = awaited
            self._deadline = self.loop.call_later(self.head_seconds, self._give_up)

    def _unwatch(self) -> None:
        self._awaited = None
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _is_owed(self) -> bool:
        """Whether the connection waits for data from the client."""
        theirs = self.conn.their_state
        return theirs is h11.IDLE or (theirs is h11.SEND_BODY and self.conn.our_state is h11.DONE)

    def _give_up(self) -> None:
        if self._is_owed():
            self.transport.close()


class Turns(asyncio.BufferedProtocol):
    """Reads a part of a connection's data, and the next part after all other connections had their turn."""

    _buffer = memoryview(bytearray(TURN_BYTES))
    """Shared by all connections: its content is copied before the next read."""

    def __init__(self, protocol: GatewayProtocol) -> None:
        self._protocol = protocol
        self.connection_lost = protocol.connection_lost
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing
        self.eof_received = protocol.eof_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(cast("asyncio.Transport", transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))
        if nbytes == TURN_BYTES:
            self._protocol.transport.pause_reading()
            self._protocol.loop.call_soon(self._protocol.read_on)


KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than usual proxies reuse it."""

STALLED_AFTER = 60
"""Seconds after which a client that reads none of the sent data loses its connection."""


def _protocol(**made: Any) -> Turns:  # noqa: ANN401 -- as uvicorn makes its protocols
    return Turns(GatewayProtocol(**made))


class AddressInUseError(StartError):
    """The address cannot be listened on; the message names it and what to do."""


class GatewayServer(uvicorn.Server):
    """Serves the application; `stop` lets open streams end before the server does.

    Requests beyond the maximum of `connections` get 503, which protects the open ones.
    """

    def __init__(self, app: Starlette, settings: GatewaySettings, connections: int | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                http=cast("type[asyncio.Protocol]", _protocol),
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # a client could claim to be a trusted proxy
                limit_concurrency=connections,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=math.ceil(settings.shutdown_grace),
            )
        )
        self._app = app

    def stop(self) -> None:
        """End open streams and waiting requests, then the server. The second call does not wait for them."""
        self._app.state.fanout.close()
        self.force_exit = self.should_exit
        self.should_exit = True

    def leave(self) -> None:
        """Accept no more connections, and end after the open ones. Another process serves on the socket."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn's own handlers end the process by the signal before our resources are closed.
        yield


def listen(settings: GatewaySettings, *, stalled_after: int = STALLED_AFTER) -> socket.socket:
    """Return a socket that listens on the configured address, and drops stalled clients.

    Raises:
        AddressInUseError: the address is in use, or not available to this process.
    """
    return _listen(settings.host, settings.port, "", "EVERLOOP_PORT", stalled_after)


def listen_for_grpc(settings: GatewaySettings) -> socket.socket:
    """Do as `listen` does, for gRPC."""
    return _listen(settings.host, settings.grpc_port or 0, " for gRPC", "EVERLOOP_GRPC_PORT", STALLED_AFTER)


def _listen(host: str, port: int, what: str, setting: str, stalled_after: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while ")[0]  # create_server repeats the address
        raise AddressInUseError(
            f"cannot listen{what} on {host}:{port}: {reason}; "
            f"stop what listens there, or set EVERLOOP_HOST and {setting}"
        ) from error
    # Connections inherit it. asyncio sets it only on sockets made with an explicit protocol number; without
    # it every response waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":  # elsewhere such a connection stays open until its client ends it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_after * 1000)
    return listener
