"""Bounds on the responses of other servers: their bytes, and the values of their JSON.

A few KB of gzip can become gigabytes, and three bytes of JSON a hundred of Python. Requests therefore ask
for uncompressed responses (`Accept-Encoding: identity`), a compressed one is refused before it is read, and
the rest is counted while it arrives.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import cast

import httpx
import httpx2

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of one response, or of one event of a stream."""

MAX_VALUES = 2_000_000
"""Values in the JSON of one of these; each costs about a hundred bytes."""

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers."""

_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LONGEST_END = 4


class AnswerTooLargeError(Exception):
    """The response exceeds a limit; the message says which."""


@dataclass(eq=False)
class AnswerBound:
    """Counts a response while it is read. In a stream of `events` each event is counted alone.

    `total`: limit in bytes of the whole stream (None: no limit).
    """

    limit: int = MAX_ANSWER
    values: int = MAX_VALUES
    _: KW_ONLY
    events: bool = False
    total: int | None = None

    def __post_init__(self) -> None:
        self._end = b""
        self._start_over()

    def feed(self, chunk: bytes) -> None:
        """Count a chunk.

        Raises:
            AnswerTooLargeError: it exceeds the limit.
        """
        if self.total is not None:
            self.total -= len(chunk)
            if self.total < 0:
                raise AnswerTooLargeError("its answer has more bytes than are read of a stream")
        if self.events:
            chunk = self._begun_event(chunk)
        self._size += len(chunk)
        if self._size > self.limit:
            raise AnswerTooLargeError(f"its answer has more than {self.limit:,} bytes")
        self._counted += self._count(chunk)
        if self._counted > self.values:
            raise AnswerTooLargeError(f"its answer has more than {self.values:,} values of JSON")

    def _start_over(self) -> None:
        self._size = self._counted = 0
        self._in_text = self._is_escaped = False

    def _begun_event(self, chunk: bytes) -> bytes:
        """Return the bytes of a chunk that belong to an event it does not finish.

        Events that end within the chunk were larger than counted by one network read at most.
        """
        joined = self._end + chunk
        last = 0
        for end in _EVENT_ENDS:
            if (at := joined.rfind(end)) >= 0:
                last = max(last, at + len(end))
        begun = len(self._end)
        self._end = joined[-_LONGEST_END:]
        if last <= begun:  # none has ended in this piece
            return chunk
        self._start_over()
        return joined[last:]

    def _count(self, chunk: bytes) -> int:
        """Count the marks before values: commas and brackets outside of strings."""
        if not chunk:  # what it would escape is still to come
            return 0
        if self._is_escaped:
            chunk = chunk[1:]
        stripped = chunk.rstrip(b"\\")
        self._is_escaped = bool((len(chunk) - len(stripped)) % 2)
        if self._is_escaped:
            chunk = chunk[:-1]
        pieces = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[1::2] if self._in_text else pieces[::2])
        self._in_text ^= len(pieces) % 2 == 0
        return sum(map(outside.count, (b",", b"[", b"{")))


def check_encoding(headers: Mapping[str, str]) -> None:
    """Check that a response is not compressed.

    Raises:
        AnswerTooLargeError: it is compressed, although the request ruled that out.
    """
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise AnswerTooLargeError(
            f"its answer is compressed ({encoding[:20]!r}), though it was asked for as it is "
            "(Accept-Encoding: identity); nobody could tell how large it becomes"
        )


def is_event_stream(headers: Mapping[str, str]) -> bool:
    """Return True for a response of server-sent events, which has no end."""
    return headers.get("content-type", "").startswith("text/event-stream")


def bounding(
    error: Callable[[str], Exception] = AnswerTooLargeError,
    *,
    limit: int = MAX_ANSWER,
    values: int = MAX_VALUES,
    total: int | None = None,
) -> Callable[[httpx.Response | httpx2.Response], Awaitable[None]]:
    """Return a response hook for an `AsyncClient`; `error` makes the exception from a text."""

    async def bound(response: httpx.Response | httpx2.Response) -> None:
        try:
            check_encoding(response.headers)
        except AnswerTooLargeError as problem:
            raise error(str(problem)) from None
        inner = cast("httpx.AsyncByteStream", response.stream)  # the client is asynchronous
        counted = AnswerBound(limit, values, events=is_event_stream(response.headers), total=total)
        response.stream = _Bounded(inner, counted, error)

    return bound


class _Bounded(httpx.AsyncByteStream, httpx2.AsyncByteStream):
    """A byte stream for either library."""

    def __init__(
        self, inner: httpx.AsyncByteStream, bound: AnswerBound, error: Callable[[str], Exception]
    ) -> None:
        self._inner = inner
        self._bound = bound
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            try:
                self._bound.feed(chunk)
            except AnswerTooLargeError as problem:
                raise self._error(str(problem)) from None
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
