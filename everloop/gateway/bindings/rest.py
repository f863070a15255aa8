"""The HTTP+JSON binding: the common part of A2A 1.0 (§11) and 0.3, and the addresses of 1.0."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from a2a.server.context import ServerCallContext
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_1_0
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InternalError
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.agents.registry import AgentRegistry
from everloop.gateway.bindings.endpoint import Endpoint, begin_call
from everloop.gateway.http.http_errors import MethodNotAllowedError, as_a2a
from everloop.gateway.http.requests import MEDIA_TYPES, A2ARequest, HttpContext
from everloop.gateway.operations.operation import OPERATIONS, Operation
from everloop.gateway.requests.proto import read_params

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler

_M = TypeVar("_M", bound=Message)

Write = Callable[[Any, A2ARequest], Any]
"""Converts a result or an event to JSON for the client of a request."""


@dataclass(frozen=True)
class RestCall:
    """One address and HTTP method."""

    operation: Operation

    read: Callable[[A2ARequest], Awaitable[Any]]
    """Reads the operation's parameters from body, query and path."""

    serve: Callable[[Any, ServerCallContext], Any]
    """Starts the operation: an awaitable or a stream."""

    write: Write


RestCalls = Mapping[str, Mapping[str, RestCall]]
"""By address and HTTP method."""


class RestEndpoint(Endpoint):
    """Answers the HTTP methods of one address, in one version of A2A."""

    def __init__(
        self, http: HttpContext, agents: AgentRegistry, calls: Mapping[str, RestCall], version: str
    ) -> None:
        super().__init__(http, agents)
        self._calls = calls
        self._version = version

    async def answer(self, request: A2ARequest) -> Response:
        call = self._call_of(request)
        subject = f"the address {request.url.path[:100]}"
        context = begin_call(request, call.operation, self._version, ("http", call.operation.name), subject)
        params = await call.read(request)
        context.tenant = request.path_params.get("tenant") or getattr(params, "tenant", "")
        result = call.serve(params, context)
        response = await self.respond_with(
            request,
            result,
            call.operation,
            lambda each: call.write(each, request) or {},
            lambda failure: build_rest_error_payload(as_a2a(failure)),
        )
        if not call.operation.is_stream:
            response.headers["Content-Type"] = self._media_type(request)
        return response

    def error(self, error: A2AError, request: A2ARequest) -> Response:
        payload: dict[str, Any] = build_rest_error_payload(error)
        status: int = payload["error"]["code"]
        if self._version != PROTOCOL_VERSION_1_0:
            # Where clients of 0.3 look.
            code = JSON_RPC_ERROR_CODE_MAP.get(type(error), JSON_RPC_ERROR_CODE_MAP[InternalError])
            payload = {**payload, "code": code, "type": type(error).__name__, "message": error.message}
        return JSONResponse(payload, status, media_type=self._media_type(request))

    def _call_of(self, request: Request) -> RestCall:
        """Return the called operation. HEAD is GET without content, except of endless streams."""
        if request.method != "HEAD":
            return self._calls[request.method]
        call = self._calls["GET"]
        if call.operation.is_stream:
            allowed = ", ".join(self._calls)
            raise MethodNotAllowedError(f"this address takes {allowed}, not HEAD", {"Allow": allowed})
        return call

    def _media_type(self, request: Request) -> str:
        """Return A2A's media type (1.0 §11.1), or that of plain JSON if the client asks for it."""
        accepted = [each.partition(";")[0].strip() for each in request.headers.get("accept", "").split(",")]
        is_plain = MEDIA_TYPES[0] in accepted and A2A_JSON_MEDIA_TYPE not in accepted
        return MEDIA_TYPES[0] if is_plain or self._version != PROTOCOL_VERSION_1_0 else A2A_JSON_MEDIA_TYPE


def read_query(kind: type[_M], sent: QueryParams) -> _M:
    """Parse a query without empty values; the last value of a name counts.

    Raises:
        InvalidParamsError: a value is invalid.
    """
    fields = cast("Descriptor", kind.DESCRIPTOR).fields
    names = {name: field.json_name for field in fields for name in (field.json_name, field.name)}
    values = {names[name]: text for name, text in sent.multi_items() if name in names and text}
    words: dict[str, object] = {"true": True, "false": False}
    booleans = {field.json_name for field in fields if field.type == field.TYPE_BOOL}
    return read_params(
        kind,
        {name: words.get(text.lower(), text) if name in booleans else text for name, text in values.items()},
    )


_CONFIGS = "/tasks/{task_id}/pushNotificationConfigs"
_ADDRESSES: Mapping[str, Mapping[str, str]] = {
    "/message:send": {"POST": "SendMessage"},
    "/message:stream": {"POST": "SendStreamingMessage"},
    "/tasks": {"GET": "ListTasks"},
    "/tasks/{id}:cancel": {"POST": "CancelTask"},
    "/tasks/{id}:subscribe": {"GET": "SubscribeToTask", "POST": "SubscribeToTask"},
    "/tasks/{id}": {"GET": "GetTask"},
    _CONFIGS: {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"},
    f"{_CONFIGS}/{{id}}": {
        "GET": "GetTaskPushNotificationConfig",
        "DELETE": "DeleteTaskPushNotificationConfig",
    },
    "/extendedAgentCard": {"GET": "GetExtendedAgentCard"},
}
"""Names in braces are fields of the parameters."""

_BODIES = {"SendMessage", "SendStreamingMessage", "CreateTaskPushNotificationConfig"}
_QUERIES = {"GetTask", "ListTasks", "ListTaskPushNotificationConfigs"}


def rest_calls(handler: "RequestHandler") -> RestCalls:
    """Return all addresses of A2A 1.0 (§5.3) and their methods."""

    def call(name: str) -> RestCall:
        operation = OPERATIONS[name]
        serve = getattr(handler, operation.method)
        return RestCall(operation, partial(_read, operation), serve, lambda each, _: operation.to_json(each))

    return {
        path: {method: call(name) for method, name in methods.items()} for path, methods in _ADDRESSES.items()
    }


async def _read(operation: Operation, request: A2ARequest) -> Message:
    if operation.name in _BODIES:
        params = read_params(operation.params, await request.json())
    elif operation.name in _QUERIES:
        params = read_query(operation.params, request.query_params)
    else:
        params = operation.params()
    for field in request.path_params.keys() & {"id", "task_id"}:
        setattr(params, field, request.path_params[field])
    return params
