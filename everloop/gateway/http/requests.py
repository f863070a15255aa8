"""HTTP requests: bounded bodies, authentication, responses, conditions and ranges."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from a2a.utils.errors import A2AError
from opentelemetry import trace
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.context import Caller, CallHeaders, trace_context
from everloop.gateway.errors import UnavailableNowError
from everloop.gateway.http.http_errors import (
    ContentTooLargeError,
    ContentTooSlowError,
    MediaTypeError,
    RangeError,
    as_a2a,
)
from everloop.gateway.requests.proto import read_json
from everloop.gateway.tasks.snapshots import held_by

# Requests: with a bounded body, in bounded time.

DISCARDED_BODIES = 4
"""Multiple of the body limit that is read and discarded, so that a client gets to read the response."""

MEDIA_TYPES = ("application/json", "application/a2a+json")
"""Accepted content types of a body, the first one on all bindings and in all versions."""

_SHOWN = 100
"""Maximum characters of a wrong media type in an error."""


BODY_WAIT = 2
"""Seconds after which a client may retry a body that exceeded the memory for bodies."""

SMALL_BODY = 262_144
"""Bytes of each body that are always accepted."""

BODIES_AT_ONCE = 16
"""Bodies of the largest size that a process holds at a time: parsed, each takes twice that and more."""


@dataclass
class BodyLimits:
    """`max_bytes` of a body, the `seconds` in which it has to arrive, the bytes `held` of all together."""

    max_bytes: int
    seconds: float = 60.0
    held: int = 0


class A2ARequest(Request):
    """HTTP request of one call. `call_state` becomes the state of the call, including the handler's entries.

    `rpc_id` is the id of the JSON-RPC response.
    """

    def __init__(self, scope: Scope, receive: Receive, limits: BodyLimits, span: trace.Span) -> None:
        super().__init__(scope, receive)
        self._limits = limits
        self._span = span
        self._content: bytes | None = None
        self._holds = 0
        self.call_state: dict[str, Any] = {}
        self.rpc_id: str | int | None = None
        self.caller = Caller()

    @property
    def agent_id(self) -> str:
        """The id of the agent in the address; empty at the root."""
        return str(self.path_params.get("agent", ""))

    def name_operation(self, system: str, operation: str) -> None:
        """Set the name of the span, for existing operations only: the number of names must stay low."""
        self._span.update_name(f"a2a {operation}")
        self._span.set_attributes({"rpc.system": system, "rpc.method": operation})

    async def body(self) -> bytes:
        """Return the body.

        Raises:
            MediaTypeError: it is not declared as JSON, or is compressed. A web page of another origin can
                send other types without a preflight (CORS).
            ContentTooLargeError: it is over the limit.
            ContentTooSlowError: it took too long.
            UnavailableNowError: the process holds too many bodies of other requests.
        """
        if self._content is None:
            try:
                async with asyncio.timeout(self._limits.seconds):
                    self._content = await self._read()
            except TimeoutError:
                raise ContentTooSlowError(
                    f"the body did not arrive within {self._limits.seconds:g} s; send it again",
                    {"Connection": "close"},
                ) from None
            if self._content:
                self._check_media_type()
        return self._content

    async def json(self) -> Any:  # noqa: ANN401 -- as starlette declares it
        return read_json(await self.body())

    def _check_media_type(self) -> None:
        coding = self.headers.get("content-encoding", "").strip().lower()
        if coding not in {"", "identity"}:
            raise MediaTypeError(
                f"Content-Encoding is {coding[:_SHOWN]!r}; send the body as it is, without that header"
            )
        declared = self.headers.get("content-type", "")
        if declared.partition(";")[0].strip().lower() not in MEDIA_TYPES:
            raise MediaTypeError(
                f"Content-Type is {declared[:_SHOWN]!r}; send JSON, and the header "
                f"Content-Type: {MEDIA_TYPES[0]}"
            )

    def let_go(self) -> None:
        """Release the memory of the body: it has been read, though the response may be a stream."""
        self._content = None
        self._limits.held -= self._holds
        self._holds = 0

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size, limit, has_room = 0, self._limits.max_bytes, True
        async for chunk in self.stream():
            size += len(chunk)
            has_room = has_room and size <= limit and self._hold(size)
            if has_room:
                chunks.append(chunk)
            else:
                chunks.clear()
                self.let_go()
            if size > DISCARDED_BODIES * limit:
                break
        if size > limit:
            raise ContentTooLargeError(
                f"the request is larger than the {limit} bytes that this server reads; send less"
            )
        if not has_room:
            raise UnavailableNowError(
                "this server reads as much as it can at once; send the same request again in a few seconds",
                retry_after=BODY_WAIT,
            )
        return b"".join(chunks)

    def _hold(self, size: int) -> bool:
        """Reserve memory for a part of the body; False if none is left. Small bodies are not counted."""
        more = max(0, size - SMALL_BODY) - self._holds
        if self._limits.held + more > BODIES_AT_ONCE * self._limits.max_bytes:
            return False
        self._limits.held += more
        self._holds += more
        return True


# Common steps of every call, of A2A and of the addresses beside it.

STOPS = UnavailableNowError(
    "this server stops; nothing is lost: send the same request again, and another one answers", retry_after=1
)
"""Response to a call that is interrupted by the end of the process."""

_tracer = trace.get_tracer("everloop.gateway")


@dataclass(frozen=True)
class HttpContext:
    """Dependencies of all endpoints. `is_stopping`: whether the process ends its streams."""

    access: AccessControl
    limits: BodyLimits
    is_stopping: Callable[[], bool] = lambda: False


class HttpEndpoint(ABC):
    """ASGI application for the calls of one address.

    It authenticates the caller before it reads the body, bounds the body, runs each call in a span of
    the caller's trace, and responds to any failure.
    """

    def __init__(self, http: HttpContext) -> None:
        self._http = http

    @abstractmethod
    def name(self, scope: Scope) -> str:
        """Return the name of the span."""

    @abstractmethod
    async def respond(self, request: A2ARequest) -> Response | None:
        """Serve a call of an authenticated caller; None after a disconnection. Failures are raised."""

    @abstractmethod
    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        """Return an error in the format of this address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = trace_context(Headers(scope=scope))
        with _tracer.start_as_current_span(self.name(scope), parent, trace.SpanKind.SERVER) as span:
            request = A2ARequest(scope, receive, self._http.limits, span)
            with suppress(ClientDisconnect), held_by(request.call_state):
                try:
                    response = await self._answer(request)
                finally:
                    request.let_go()
                if response:
                    await response(scope, receive, send)

    async def _answer(self, request: A2ARequest) -> Response | None:
        try:
            request.caller = await self._authenticate(request)
            return await self.respond(request)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:
            if not self._http.is_stopping():
                raise
            # The grace period is over. Unhandled, uvicorn would report an internal error.
            return self.refuse(STOPS, request)
        except Exception as failure:  # noqa: BLE001 -- every failure gets a response, without internals
            return self.refuse(as_a2a(failure), request)

    async def _authenticate(self, request: Request) -> Caller:
        """Return the caller, and count the request toward its owner's limit.

        A repeated header is joined (RFC 9110 §5.3): a value that a client puts before that of its proxy
        is not taken for the proxy's.

        Raises:
            TooManyHeadersError: there are more headers than allowed.
            UnauthenticatedError, TooManyRequestsError, UnavailableNowError: from `AccessControl.admit`.
        """
        headers = CallHeaders(request.headers.items())
        return await self._http.access.admit(headers, request.client.host if request.client else "")


# Conditions and ranges of requests (RFC 9110 §13, §14).

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_RANGE = re.compile(r"bytes=\s*(\d{0,30})-(\d{0,30})\s*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes from `start` to `end` (exclusive)."""

    start: int
    end: int


def names_tag(header: str, etag: str, *, weakly: bool) -> bool:
    """Whether If-Match or If-None-Match names a strong entity tag, which is passed with its quotes.

    If-None-Match compares weakly: `W/"x"` names `"x"` too (RFC 9110 §8.8.3.2).
    """
    if header.strip() == "*":
        return True
    return any((weakly or not found[1]) and f'"{found[2]}"' == etag for found in _TAG.finditer(header))


def read_range(header: str, size: int) -> ByteRange | None:
    """Return the range of a Range header, for content of this size; None for all of it.

    Any other header than a single range of bytes selects all, as RFC 9110 §14.2 allows: several ranges,
    another unit, or a malformed one.

    Raises:
        RangeError: the content ends before the range begins, or the range is empty.
    """
    found = _RANGE.fullmatch(header)
    if not found or found[1] == found[2] == "":
        return None
    if not found[1]:
        length = int(found[2])
        if not length:
            raise _no_such_bytes(size)
        # A suffix of empty content cannot be expressed in Content-Range.
        return ByteRange(max(0, size - length), size) if size else None
    start = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < start:
        return None
    if start >= size:
        raise _no_such_bytes(size)
    return ByteRange(start, min(last + 1, size))


def _no_such_bytes(size: int) -> RangeError:
    return RangeError(f"there are no such bytes: the part has {size}", {"Content-Range": f"bytes */{size}"})
