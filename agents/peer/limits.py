"""How much of a peer's answers is read."""

from collections.abc import AsyncIterator

import httpx

from agents.peer.errors import PeerRefusedError

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer, or of one event of a stream."""


async def bound(response: httpx.Response) -> None:
    """Let the reading of a response end in an error where it is too large. A hook of an `AsyncClient`."""
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 -- the client is asynchronous
    events = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = Bounded(response.stream, MAX_ANSWER, events=events)


class Bounded(httpx.AsyncByteStream):
    """A body of at most `limit` bytes; one of `events` has no end, but each of its lines has."""

    def __init__(self, inner: httpx.AsyncByteStream, limit: int, *, events: bool) -> None:
        self._inner = inner
        self._limit = limit
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            line_end = chunk.rfind(b"\n") if self._events else -1
            size = len(chunk) - line_end - 1 if line_end >= 0 else size + len(chunk)
            if size > self._limit:
                raise PeerRefusedError(f"its answer has more than {self._limit:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
