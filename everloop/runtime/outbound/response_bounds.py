"""Bounds on the responses of other servers: their bytes, and the values of their JSON.

A few KB of gzip can become gigabytes, and three bytes of JSON a hundred of Python. Requests therefore ask
for uncompressed responses (`Accept-Encoding: identity`), a compressed one is refused before it is read, and
the rest is counted while it arrives.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import cast

import httpx
import httpx2

from everloop.runtime.outbound.bounds import MAX_ANSWER, MAX_VALUES, AnswerBound, AnswerTooLargeError

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers."""


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
