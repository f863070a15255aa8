"""The JSON-RPC binding over HTTP: what the SDK's dispatcher leaves to the server around it."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, cast

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils.errors import InvalidParamsError
from opentelemetry import propagate, trace
from sse_starlette import EventSourceResponse
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from gateway.cancellation import cancel
from gateway.errors import REFUSAL
from gateway.event_ids import ServerSentEvent, with_ids
from gateway.raw_parts import raw_flaw
from gateway.refusals import RefusalError, http_status
from stores.a2a_tasks import EVENTS_EXTENSION

INVALID_REQUEST = -32600
CONTENT_TOO_LARGE = 413

DISCARDED_BODIES = 4
"""How many times the limit of a body is read and thrown away, so that a client gets to read our answer."""

_tracer = trace.get_tracer("everloop.gateway")


class BodyTooLargeError(Exception):
    """The body is larger than this server reads."""


class JsonRpcEndpoint:
    """An ASGI application that answers JSON-RPC requests.

    Around the SDK's dispatcher it bounds the body, stops working for a client that left, gives streamed
    events their ids, answers 503 with Retry-After where a server we need is away, and runs each call in a
    span of the caller's trace.
    """

    def __init__(self, handler: RequestHandler, *, max_body_bytes: int) -> None:
        # It would log the parameters that it cannot parse, and the errors that we log ourselves.
        logging.getLogger(JsonRpcDispatcher.__module__).setLevel(logging.CRITICAL)
        self._dispatcher = JsonRpcDispatcher(handler, context_builder=_CallContextBuilder())
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = propagate.extract(Headers(scope=scope))
        with _tracer.start_as_current_span("a2a", parent, trace.SpanKind.SERVER) as span:
            request = _JsonRpcRequest(scope, receive, self._max_body_bytes, span)
            with suppress(ClientDisconnect):
                if response := await self._respond(request, receive):
                    await response(scope, receive, send)

    async def _respond(self, request: "_JsonRpcRequest", receive: Receive) -> Response | None:
        try:
            await request.body()
        except BodyTooLargeError:
            return _too_large(self._max_body_bytes)
        response = await _unless_client_leaves(self._dispatcher.handle_requests(request), receive)
        if response is None:
            return None
        if isinstance(response, EventSourceResponse):
            events = cast("AsyncGenerator[ServerSentEvent]", response.body_iterator)
            response.body_iterator = with_ids(events, request.call_state)
        refusal = request.call_state.get(REFUSAL)
        if isinstance(refusal, RefusalError):
            response.status_code = http_status(refusal)
            if refusal.retry_after is not None:
                response.headers["Retry-After"] = str(refusal.retry_after)
        if EVENTS_EXTENSION in get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER)):
            response.headers[HTTP_EXTENSION_HEADER] = EVENTS_EXTENSION
        return response


class _JsonRpcRequest(Request):
    """A request that reads a bounded body and names its span after the method."""

    def __init__(self, scope: Scope, receive: Receive, max_bytes: int, span: trace.Span) -> None:
        super().__init__(scope, receive)
        self._max_bytes = max_bytes
        self._span = span
        self._content: bytes | None = None
        self.call_state: dict[str, Any] = {}
        self.flaw = ""
        self.span: trace.Span = trace.INVALID_SPAN

    async def body(self) -> bytes:
        if self._content is None:
            self._content = await self._read()
        return self._content

    async def json(self) -> Any:  # noqa: ANN401 -- as starlette declares it
        body = await self.body()
        try:
            parsed = json.loads(body)
        except json.JSONDecodeError:
            raise  # it says where, and repeats nothing of the body
        except (ValueError, RecursionError) as error:
            # Wrong UTF-8, numbers of thousands of digits, endless nesting.
            raise json.JSONDecodeError(f"the body is not JSON ({type(error).__name__})", "", 0) from error
        _name_span(self._span, parsed)
        self.flaw = raw_flaw(parsed)
        return parsed

    async def _read(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.stream():
            size += len(chunk)
            if size <= self._max_bytes:
                chunks.append(chunk)
            elif size > DISCARDED_BODIES * self._max_bytes:
                break
        if size > self._max_bytes:
            raise BodyTooLargeError
        return b"".join(chunks)


class _CallContextBuilder(DefaultServerCallContextBuilder):
    """Lets the endpoint read what the handler leaves in the state of the call.

    It refuses what the parsed parameters show no more; the dispatcher turns the error into an answer.
    """

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        if isinstance(request, _JsonRpcRequest):
            if request.flaw:
                raise InvalidParamsError(request.flaw)
            request.call_state.update(context.state)
            context.state = request.call_state
        return context


async def _unless_client_leaves(answer: Coroutine[Any, Any, Response], receive: Receive) -> Response | None:
    """Return the answer, or None, and stop working on it, if the client closes its connection first."""
    answering = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        await asyncio.gather(cancel(answering), cancel(leaving))


async def _disconnected(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


def _name_span(span: trace.Span, parsed: object) -> None:
    """Name the span after the method; only after one that exists, for names must stay few."""
    method = cast("dict[str, object]", parsed).get("method") if isinstance(parsed, dict) else None
    if isinstance(method, str) and method in JsonRpcDispatcher.METHOD_TO_MODEL:
        span.update_name(f"a2a {method}")
        span.set_attributes({"rpc.system": "jsonrpc", "rpc.method": method})


def _too_large(limit: int) -> Response:
    message = f"the request is larger than the {limit} bytes that this server reads; send less"
    error = {"code": INVALID_REQUEST, "message": message}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=CONTENT_TOO_LARGE)
