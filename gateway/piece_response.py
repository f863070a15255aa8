"""A response that is sent piece by piece, and that never ends well unless all of it was sent."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Self

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

SENT_AT_ONCE = 256 * 1024
"""Bytes that are handed to the connection at once: it copies what the client does not take in time."""

_log = structlog.get_logger()

Pieces = AsyncGenerator[bytes]


class PieceResponse(StreamingResponse):
    """Sends pieces as fast as the client takes them.

    If what makes the pieces fails, the response stays unfinished: the server cuts the connection, so that no
    client takes it for the whole. So it does if there are fewer bytes than the headers promise, or if this
    process stops first. `what` names it in the log.
    """

    def __init__(
        self, first: bytes, rest: Pieces, status: HTTPStatus, headers: Mapping[str, str], *, what: str
    ) -> None:
        super().__init__(rest, status, headers)
        self._first = first
        self._rest = rest
        self._what = what
        length = headers.get("Content-Length")
        self._length = None if length is None else int(length)

    @classmethod
    async def begin(
        cls, pieces: Pieces, status: HTTPStatus, headers: Mapping[str, str], *, what: str
    ) -> Self:
        """Return the response when its first piece is there; what goes wrong until then is raised."""
        return cls(await anext(pieces, b""), pieces, status, headers, what=what)

    async def close(self) -> None:
        """Give it up unsent."""
        await self._rest.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server stops, and has waited for as long as it may
            _log.warning("download cut", what=self._what, error="the gateway stops")

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            sent = await self._send_pieces(send)
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the client must not take this for the whole
            _log.error("download cut", what=self._what, exc_info=failure)
            return
        if self._length not in {None, sent}:  # the server would raise, and leave the client waiting
            _log.error("download cut", what=self._what, error=f"{sent} bytes of {self._length}")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_pieces(self, send: Send) -> int:
        first, self._first = self._first, b""
        async with aclosing(self._rest) as rest:
            sent = await _send_piece(first, send)
            del first
            async for piece in rest:
                sent += await _send_piece(piece, send)
        return sent


async def _send_piece(piece: bytes, send: Send) -> int:
    view = memoryview(piece)
    for start in range(0, len(view), SENT_AT_ONCE):
        body = view[start : start + SENT_AT_ONCE]
        await send({"type": "http.response.body", "body": body, "more_body": True})
    return len(view)
