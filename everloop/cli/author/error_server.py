"""Serve a page with the error, in place of a gateway that cannot start yet."""

import asyncio
import contextlib
import socket
from collections.abc import Generator, Iterable
from http import HTTPStatus

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from everloop.gateway.http.origins import OwnPagesOnly

RETRY_SECONDS = "1"
"""Seconds after which clients may retry, and browsers do."""

GRACE_SECONDS = 1


class ErrorServer:
    """Server of one error on a shared socket, from the first `tell` until `stop`.

    `hosts`: accepted host names besides those of this machine. The error has lines of source.
    """

    def __init__(self, listener: socket.socket, hosts: Iterable[str] = ()) -> None:
        self._listener = listener
        self._app = OwnPagesOnly(self._answer, hosts)
        self._message = ""
        self._server: _ErrorServer | None = None
        self._serving: asyncio.Task[None] | None = None

    def tell(self, message: str) -> None:
        """Answer every request with this message from now on."""
        self._message = message
        if self._serving is None:
            config = uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
            self._server = _ErrorServer(config)
            self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener.dup()]))

    async def stop(self) -> None:
        """Stop serving; the socket stays open for other processes."""
        if self._server and self._serving:
            self._server.should_exit = True
            await self._serving
            self._server = self._serving = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(Request(scope))(scope, receive, send)

    def _response(self, request: Request) -> Response:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        headers = {"Retry-After": RETRY_SECONDS, "Connection": "close"}
        if "text/html" in request.headers.get("accept", ""):
            # A browser; it shows the agents once they are served.
            return PlainTextResponse(self._message, status, {**headers, "Refresh": RETRY_SECONDS})
        error = {"code": status.value, "status": "UNAVAILABLE", "message": self._message}
        return JSONResponse({"error": error}, status, headers)


class _ErrorServer(uvicorn.Server):
    """Server that leaves signals to its process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
