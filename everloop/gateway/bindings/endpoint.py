"""The ASGI application that answers A2A calls over HTTP, whatever their binding."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, cast

from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import A2AError, VersionNotSupportedError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope

from everloop.agents.errors import UnknownAgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.bindings.sse import Comment, ServerSentEvent, event_stream, server_sent
from everloop.gateway.context import AGENT, served_version
from everloop.gateway.errors import RefusalError
from everloop.gateway.http.http_errors import AddressUnknownError, status_of
from everloop.gateway.http.requests import A2ARequest, HttpContext, HttpEndpoint
from everloop.gateway.operations.operation import Operation
from everloop.gateway.tasks.streams import EVENT_ID
from everloop.runtime.redis import cancel
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.parts import with_whole_numbers

LEGACY_EXTENSION_HEADER = f"X-{HTTP_EXTENSION_HEADER}"
"""Of clients of A2A 0.3. The SDK has the name in a module that loads a client, and gRPC."""

RECONNECT_AFTER = 1000
"""Milliseconds after which a client of a gateway that stops should connect again, to another one."""


class Endpoint(HttpEndpoint):
    """One way of calling A2A over HTTP.

    It stops working for a client that left, gives streamed events their ids, and answers with the status and
    headers of HTTP what its way of calling cannot say.
    """

    def __init__(self, http: HttpContext, agents: AgentRegistry) -> None:
        super().__init__(http)
        self._agents = agents

    @abstractmethod
    async def answer(self, request: A2ARequest) -> Response:
        """Answer a call whose body is read; what goes wrong may be raised."""

    @abstractmethod
    def error(self, error: A2AError, request: A2ARequest) -> Response:
        """Return an error as clients of this way of calling read it; its status is seen to."""

    def name(self, scope: Scope) -> str:
        return "a2a"

    async def respond(self, request: A2ARequest) -> Response | None:
        self._check_agent(request)
        await request.body()
        response = await _unless_client_leaves(self.answer(request), request.receive)
        return response and self._completed(response, request)

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        response = self.error(error, request)
        response.status_code = status_of(error) or response.status_code
        response.headers.update(error.headers if isinstance(error, RefusalError) else {})
        return self._completed(response, request)

    async def respond_with(  # noqa: PLR0913 -- what is answered, and how it is written
        self,
        request: A2ARequest,
        result: Any,  # noqa: ANN401 -- something to await, or a stream, as the operation says
        operation: Operation,
        write: Callable[[Any], Any],
        error_data: Callable[[Exception], Any],
        *,
        error_event: bool = True,
    ) -> Response:
        """Return the response with the result of an operation, or that streams its events, written as JSON.

        What fails before the first event is raised. A later failure is the last event: `error_event` gives it
        the name "error".
        """
        if not operation.is_stream:
            return JSONResponse(write(await result))
        items = cast("AsyncGenerator[object]", result)
        try:
            first = [await anext(items)]
        except StopAsyncIteration:
            first = []

        def event(item: object) -> ServerSentEvent:
            # Events are made one at a time, when they are asked for: the id in the state is that of this one.
            event_id = request.call_state.pop(EVENT_ID, None)
            return server_sent(write(item), **({"id": str(event_id)} if event_id else {}))

        def error(failure: Exception) -> ServerSentEvent:
            # Without an id: the client asks again for what it could not be told.
            return server_sent(error_data(failure), **({"event": "error"} if error_event else {}))

        return event_stream(self._events(first, items, event, error))

    async def _events(
        self,
        first: list[object],
        items: AsyncGenerator[object],
        event: Callable[[object], ServerSentEvent],
        error: Callable[[Exception], ServerSentEvent],
    ) -> AsyncGenerator[ServerSentEvent | Comment]:
        async with aclosing(items):
            while first:  # not kept: it may be a large task
                yield event(first.pop())
            try:
                async for item in items:
                    yield event(item)
            except Exception as failure:  # noqa: BLE001 -- whatever it is, the client is told in its own terms
                yield error(failure)
        if self._http.is_stopping():
            hint = "this server stops: connect again with Last-Event-ID"
            yield Comment(comment=hint, retry=RECONNECT_AFTER)

    def _check_agent(self, request: A2ARequest) -> None:
        """Pass if the address is of an agent of ours."""
        if request.agent_id:
            try:
                self._agents.find(request.agent_id)
            except UnknownAgentError:
                raise AddressUnknownError(
                    f"no agent {request.agent_id[:100]!r} here; GET /agents lists those of this server"
                ) from None

    def _completed(self, response: Response, request: A2ARequest) -> Response:
        if isinstance(response, JSONResponse):
            _write_whole_numbers(response)
        for header in (HTTP_EXTENSION_HEADER, LEGACY_EXTENSION_HEADER):
            if EVENTS_EXTENSION in get_requested_extensions(request.headers.getlist(header)):
                response.headers[header] = EVENTS_EXTENSION
        return response


def _write_whole_numbers(response: JSONResponse) -> None:
    """Write counts as clients expect them: protobuf has made doubles of all numbers in metadata and data."""
    body = bytes(response.body)
    if b".0" in body:
        response.body = with_whole_numbers(body.decode()).encode()
        response.headers["Content-Length"] = str(len(response.body))


SOON = 0.1
"""Seconds."""


async def _unless_client_leaves(answer: Coroutine[Any, Any, Response], receive: Receive) -> Response | None:
    """Return the response; None, and cancel the work, if the client closes its connection first.

    The connection is checked only if the response takes long, which most do not.
    """
    answering, waiting = asyncio.ensure_future(answer), list[asyncio.Future[Any]]()
    try:
        await asyncio.wait({answering}, timeout=SOON)
        if not answering.done():
            waiting.append(asyncio.ensure_future(_disconnected(receive)))
            await asyncio.wait({answering, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        for each in (answering, *waiting):
            await cancel(each)
        if not answering.cancelled():
            answering.exception()  # who has left hears nothing of it


async def _disconnected(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


# Which call a request is, and whether its caller may make it.

_VERSION_SHOWN = 40
"""How many characters of a wrong version are repeated."""


def begin_call(
    request: A2ARequest, operation: Operation, version: str, called: tuple[str, str], subject: str
) -> ServerCallContext:
    """Return the context of a call that its caller may make; nothing of its parameters has been read.

    `version` is that of A2A which the call is of, `called` the system and the name that its span gets, and
    `subject` what errors call it.

    Raises:
        VersionNotSupportedError: the client says another version.
        ForbiddenError: the caller lacks the scope of the operation.
    """
    sent = sent_version(request)
    _check_version(sent, version, subject)
    request.name_operation(*called)
    operation.authorize(request.caller)
    extensions = request.headers.getlist(HTTP_EXTENSION_HEADER)
    if version == PROTOCOL_VERSION_0_3:
        extensions += request.headers.getlist(LEGACY_EXTENSION_HEADER)
    context = ServerCallContext(
        user=request.caller, requested_extensions=get_requested_extensions(extensions)
    )
    context.state = request.call_state  # the constructor would copy it
    context.state["headers"] = {**request.headers, VERSION_HEADER.lower(): sent}
    if request.agent_id:
        context.state[AGENT] = request.agent_id
    return context


def sent_version(request: Request) -> str:
    """Return the version that a client names, in a header or in the query; empty: none (A2A 1.0 §3.6.1)."""
    query = QueryParams(request.scope["query_string"])
    return request.headers.get(VERSION_HEADER) or query.get(VERSION_HEADER, "")


def _check_version(sent: str, needed: str, subject: str) -> None:
    """Refuse a call in a version that `subject`, an operation or an address, is not of.

    Patch numbers do not matter (§3.6); no version means 0.3.

    Raises:
        VersionNotSupportedError: the text says which version to send.
    """
    version = served_version(sent or PROTOCOL_VERSION_0_3)
    if version is None:
        raise VersionNotSupportedError(
            f"{VERSION_HEADER} is {sent[:_VERSION_SHOWN]!r}; "
            "this server speaks 1.0 and 0.3: send one of these"
        )
    if version == needed:
        return
    if needed == PROTOCOL_VERSION_1_0:
        says = f"says {sent}" if sent else "is missing, which means 0.3"
        raise VersionNotSupportedError(
            f"{subject} is of A2A 1.0, but the header {VERSION_HEADER} {says}; "
            f"send the header {VERSION_HEADER}: 1.0"
        )
    raise VersionNotSupportedError(
        f"{subject} is of A2A 0.3, but {VERSION_HEADER} says {sent}; "
        f"send {VERSION_HEADER}: 0.3 or none, or use the operation of A2A 1.0"
    )
