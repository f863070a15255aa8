"""The frame of every gRPC call: authentication, limits, trace, final status."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3.extension_headers import LEGACY_HTTP_EXTENSION_HEADER
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcServerCallContextBuilder
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2AError,
    InternalError,
    InvalidRequestError,
    VersionNotSupportedError,
)
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from opentelemetry import trace

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.legacy import check_parts, use_client_files, use_sdk_files
from everloop.gateway.context import CallHeaders, served_version, trace_context
from everloop.gateway.errors import RefusalError, TooManyHeadersError, UnavailableNowError
from everloop.gateway.http.http_errors import as_a2a
from everloop.gateway.http.server import STALLED_AFTER
from everloop.gateway.operations.operation import OPERATIONS
from everloop.gateway.requests.proto import read_message
from everloop.gateway.tasks.snapshots import held_by
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.parts import cut_bytes

# How gRPC says what went wrong: a status with details (A2A 1.0 §10.6, google.rpc.Status).

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

DOMAIN = "a2a-protocol.org"
DETAILS = "grpc-status-details-bin"
CHALLENGE = "www-authenticate"

LONGEST_TEXT = 1_000
"""Bytes of an error's text. It is sent twice, and clients take 8 KB of metadata."""


async def refuse(context: Context, error: A2AError, *, is_legacy: bool) -> NoReturn:
    """End a call with the status of an error; `is_legacy`: clients of A2A 0.3 find its name in the text."""
    mapping = A2A_ERROR_MAPPING.get(type(error), A2A_ERROR_MAPPING[InternalError])
    code = grpc.StatusCode[mapping.grpc_status]
    text = _shortened(f"{type(error).__name__}: {error.message}" if is_legacy else error.message)
    status = status_pb2.Status(code=code.value[0], message=text)
    for detail in _details(error, mapping.reason):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    trailing: list[tuple[str, str | bytes]] = [(DETAILS, status.SerializeToString())]
    if isinstance(error, RefusalError) and error.challenge:
        trailing.append((CHALLENGE, error.challenge))
    trace.get_current_span().set_attribute("rpc.grpc.status_code", code.value[0])
    await context.abort(code, text, tuple(trailing))


def _details(error: A2AError, reason: str) -> Iterator[Message]:
    yield error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)
    if isinstance(error, RefusalError) and error.retry_after is not None:
        yield error_details_pb2.RetryInfo(retry_delay=Duration(seconds=error.retry_after))


def _shortened(text: str) -> str:
    short = cut_bytes(text, LONGEST_TEXT)
    return short if len(short) == len(text) else f"{short}…"


LEGACY_SERVICE = "a2a.v1.A2AService"
"""The service of A2A 0.3; that of 1.0 is `lf.a2a.v1.A2AService`."""

_LEGACY_NAMES = {
    "GetAgentCard": "GetExtendedAgentCard",
    "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs",
    "TaskSubscription": "SubscribeToTask",
}
"""Operations with other names in A2A 0.3."""

VERSION = VERSION_HEADER.lower()
EXTENSIONS = HTTP_EXTENSION_HEADER.lower()
LEGACY_EXTENSIONS = LEGACY_HTTP_EXTENSION_HEADER.lower()

_SHOWN = 40
"""How many characters of a wrong version are repeated."""

REQUEST_SECONDS = 30.0
"""In which a call that was let in has to send its request."""

STATUS_WAIT = 1.0
"""Seconds that the status gets to reach a client that takes nothing."""

_SMALL_BYTES = 65_536
"""Requests up to this size are read at once; others beside the calls that are served meanwhile."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Requests: TypeAlias = AsyncIterator[bytes]

_tracer = trace.get_tracer("everloop.gateway")
_call: ContextVar[ServerCallContext] = ContextVar("everloop.grpc_call")


class CallContexts(GrpcServerCallContextBuilder):
    """Gives the SDK's handlers the context of the call that `Calls` let in."""

    def build(self, context: Context) -> ServerCallContext:
        return _call.get()


@dataclass(frozen=True)
class _Method:
    """A method as gRPC names it: `/service/name`."""

    service: str
    name: str

    @property
    def is_legacy(self) -> bool:
        return self.service == LEGACY_SERVICE


class Calls(grpc.aio.ServerInterceptor):
    """Lets calls in, and lets nothing out but answers and statuses.

    `host_of` returns the address of the client that gRPC calls its peer. `is_stopping` says that streams end
    because the process does, not because their task has. A client that takes nothing for `stalled_after`
    seconds is left.
    """

    def __init__(
        self,
        access: AccessControl,
        host_of: Callable[[str], str],
        *,
        stalled_after: float = STALLED_AFTER,
    ) -> None:
        self._access = access
        self._host_of = host_of
        self._stalled_after = stalled_after
        self.is_stopping = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = await continuation(handler_call_details)
        if handler is None:  # no such method; gRPC says so itself
            return None
        service, _, name = handler_call_details.method.lstrip("/").partition("/")
        serve = self._serving(_Method(service, name), handler)
        # As streams of requests, though each has one: gRPC reads those when it is asked to, not before.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(serve, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(serve, None, handler.response_serializer)

    def _serving(self, method: _Method, handler: Handler) -> Callable[[_Requests, Context], Any]:
        kind = cast("type[Message]", cast("Any", handler.request_deserializer).__self__)
        answer, stream = cast("Any", handler.unary_unary), cast("Any", handler.unary_stream)

        async def serve(requests: _Requests, context: Context) -> object:
            async with self._served(method, context):
                request = await _read(method, kind, requests)
                if not handler.response_streaming:
                    return _written(method, await answer(request, context))
                return await self._stream(method, stream(request, context), context)

        return serve

    async def _stream(self, method: _Method, responses: AsyncGenerator[Message], context: Context) -> None:
        async with aclosing(responses):
            async for response in responses:
                await self._send(context, _written(method, response))
        if self.is_stopping:
            raise UnavailableNowError(
                "the server is about to stop; nothing is lost: call SubscribeToTask to go on", retry_after=1
            )

    async def _send(self, context: Context, response: object) -> None:
        """Send one response; it waits until the client has room for it."""
        try:
            async with asyncio.timeout(self._stalled_after):
                await context.write(response)
        except TimeoutError:
            raise _StalledError from None

    @asynccontextmanager
    async def _served(self, method: _Method, context: Context) -> AsyncGenerator[None]:
        """Run a call in the caller's trace, and end it with a status whatever goes wrong."""
        try:
            headers = _headers(context)
        except TooManyHeadersError as error:
            await refuse(context, error, is_legacy=method.is_legacy)
        with _tracer.start_as_current_span(
            f"a2a {method.name}",
            trace_context(headers),
            trace.SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": method.service, "rpc.method": method.name},
            record_exception=False,
            set_status_on_exception=False,
        ):
            try:
                await self._let_in(method, headers, context)
                yield
            except _StalledError:
                error = UnavailableNowError("you took no events for too long; call SubscribeToTask to go on")
                with suppress(TimeoutError):  # the status waits for the client too
                    async with asyncio.timeout(STATUS_WAIT):
                        await refuse(context, error, is_legacy=method.is_legacy)
            except grpc.aio.BaseError:  # the client is gone, and gRPC knows it
                raise
            except Exception as failure:  # noqa: BLE001 -- gRPC would show the text of any other exception
                await refuse(context, as_a2a(failure), is_legacy=method.is_legacy)

    async def _let_in(self, method: _Method, headers: CallHeaders, context: Context) -> None:
        """Judge a call by its metadata: nothing else of it has been read."""
        caller = await self._access.admit(headers, self._host_of(context.peer()))
        headers[VERSION] = _spoken_version(method, headers.get(VERSION, ""))
        OPERATIONS[_LEGACY_NAMES.get(method.name, method.name)].authorize(caller)
        extensions = get_requested_extensions([headers.get(EXTENSIONS, "")])
        if method.is_legacy:
            extensions |= get_requested_extensions([headers.get(LEGACY_EXTENSIONS, "")])
        if EVENTS_EXTENSION in extensions:
            named = LEGACY_EXTENSIONS if method.is_legacy else EXTENSIONS
            await context.send_initial_metadata(((named, EVENTS_EXTENSION),))
        call = ServerCallContext(user=caller, state={"headers": headers}, requested_extensions=extensions)
        held = held_by(call.state)

        def let_go(_context: object) -> None:  # the answer is sent, or given up
            held.close()

        context.add_done_callback(cast("Any", let_go))
        _call.set(call)


class _StalledError(Exception):
    """The client does not read its responses."""


async def _read(method: _Method, kind: type[Message], requests: _Requests) -> Message:
    """Return the request of a call that was let in.

    Raises:
        InvalidRequestError: it is not a message of its type.
        InvalidParamsError: it has more in it than is read, or an empty part.
        UnavailableNowError: it does not come.
    """
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            content = await anext(aiter(requests), b"")
    except TimeoutError:
        raise UnavailableNowError(f"no request came within {REQUEST_SECONDS:g} s; call again") from None
    try:
        if len(content) <= _SMALL_BYTES:
            message = read_message(kind, content)
        else:
            message = await asyncio.to_thread(read_message, kind, content)
    except (DecodeError, ValueError, RecursionError):
        raise InvalidRequestError(f"the request is no message that {method.name} takes") from None
    if isinstance(message, pb03.SendMessageRequest):
        check_parts(message)
        use_sdk_files(message, _call.get().state["headers"])
    return message


def _written(method: _Method, response: Message) -> Message:
    """Return a response as its client reads it."""
    return use_client_files(response, _call.get().state["headers"]) if method.is_legacy else response


def _spoken_version(method: _Method, requested: str) -> str:
    """Return the version of A2A that a call speaks.

    A2A 1.0 §3.6.2: an unknown one is refused. Without A2A-Version a call over HTTP is of 0.3; over gRPC each
    version has a service of its own.

    Raises:
        VersionNotSupportedError: it is not that of the service.
    """
    own = PROTOCOL_VERSION_0_3 if method.is_legacy else PROTOCOL_VERSION_1_0
    if requested and served_version(requested) != own:
        raise VersionNotSupportedError(
            f"{VERSION_HEADER} is {requested[:_SHOWN]!r}, but the service {method.service} is of A2A {own}; "
            f"send {VERSION_HEADER}: {own}, or call the service of your version, if the agent card has one"
        )
    return own


def _headers(context: Context) -> CallHeaders:
    """Return the metadata that are text.

    Raises:
        TooManyHeadersError: there are too many. gRPC's own bound on their size does not hold for a client
            that never acknowledges the server's settings; some 16 MB then get here.
    """
    sent = context.invocation_metadata() or ()
    return CallHeaders((name, value) for name, value in sent if isinstance(value, str))
