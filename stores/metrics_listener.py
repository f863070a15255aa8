"""The HTTP listener of a process for operators: metrics as Prometheus reads them, and probes."""

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import structlog
from structlog.typing import FilteringBoundLogger

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format. The Temporal SDK writes no other one."""

REQUEST_TIMEOUT = 10.0
"""Seconds that a client has to say what it wants: each that does not costs a thread."""

_POLL = 0.1
"""Seconds that closing may take: so often the thread looks whether it is to end."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class MetricsAddressError(Exception):
    """EVERLOOP_METRICS_ADDRESS cannot be listened on; the message names it and says what to do."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port`; an IPv6 address stands in brackets.

        Raises:
            ValueError: it is something else.
        """
        host, _, port = text.rpartition(":")
        is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16  # noqa: PLR2004 -- the digits of 65535
        is_bracketed = host.startswith("[") and host.endswith("]")
        if not host.strip("[]") or not is_port or (":" in host and not is_bracketed):
            raise ValueError(f"{text!r} is no host:port; expected an address such as 127.0.0.1:9464")
        return cls(host.strip("[]"), int(port))


class MetricsListener:
    """Answers /metrics, /healthz and /readyz in threads of its own, also while the event loop is busy.

    `read` returns the text of the metrics (at first there are none). /healthz is 200 while the process runs;
    /readyz is 200 while `is_ready`, else 503.

    Raises:
        MetricsAddressError: the address cannot be listened on.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.read: Callable[[], bytes] = bytes
        self.is_ready = False
        self._server = _listen(address, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[_POLL], name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that takes its time must not hold up the end of the process
    listener: MetricsListener

    def handle_error(self, request: object, client_address: object) -> None:
        # A client that hangs up is no news; the inherited method would write its traceback to stderr.
        _log.debug("request for metrics failed", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server_version = "everloop"
    sys_version = ""
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] -- _listen makes no other one

    def do_GET(self) -> None:
        listener = self.server.listener
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, listener.read(), CONTENT_TYPE)
            case "/healthz":
                self._answer(HTTPStatus.OK, b"ok\n")
            case "/readyz" if listener.is_ready:
                self._answer(HTTPStatus.OK, b"ready\n")
            case "/readyz":
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, b"expected /metrics, /healthz or /readyz\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Write nothing: probes come every few seconds."""

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _listen(address: Address, listener: MetricsListener) -> _Server:
    kind = _Server6 if ":" in address.host else _Server
    try:
        server = kind(address, _Handler)
    except OSError as error:
        raise MetricsAddressError(
            f"cannot listen on {address} for metrics: {error.strerror or error}; "
            "stop what listens there, or set EVERLOOP_METRICS_ADDRESS to another host:port"
        ) from error
    server.listener = listener
    return server
