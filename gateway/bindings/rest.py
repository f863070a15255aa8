"""The HTTP+JSON binding: what A2A 1.0 (§11) and 0.3 have in common."""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.rest_adapter import REST03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.routes.rest_dispatcher import RestDispatcher
from a2a.types import a2a_pb2 as pb
from a2a.utils import error_handlers, json_utils, proto_utils
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_1_0
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InternalError, InvalidParamsError
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToJson, ParseDict
from google.protobuf.message import Message
from sse_starlette import EventSourceResponse
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.auth.scopes import check_operation
from everloop.gateway.bindings.context import CallContexts, check_version
from everloop.gateway.bindings.http_errors import MethodNotAllowedError, a2a_errors_only, as_a2a
from everloop.gateway.bindings.legacy import LegacyHandler
from everloop.gateway.bindings.requests import MEDIA_TYPES, A2ARequest
from everloop.gateway.bindings.shell import Binding, stream_response
from everloop.gateway.context import caller_of_request
from everloop.gateway.requests.proto import flaw, legacy_upload_flaw, page_of_tasks


@dataclass(frozen=True)
class RestCall:
    """What one address does for one HTTP method. `operation` is its name on JSON-RPC.

    `body` and `query`: which message the body, or the query, is of; None: it is not read. `flaw` finds what
    else is wrong with a body.
    """

    operation: str
    endpoint: Callable[[Request], Awaitable[Response]]
    body: type[Message] | None = None
    query: type[Message] | None = None
    flaw: Callable[[object], str] = lambda _: ""


class RestBinding(Binding):
    """Answers calls of one address, by HTTP method, in one version of A2A."""

    def __init__(self, calls: Mapping[str, RestCall], version: str) -> None:
        self._calls = calls
        self._version = version

    async def respond(self, request: A2ARequest) -> Response:
        call = self._call_of(request)
        check_version(request, self._version, f"the address {request.url.path[:100]}")
        request.name_operation("http", call.operation)
        check_operation(caller_of_request(request), call.operation)
        if call.body:
            body = _checked(call.body, await request.json())
            if found := call.flaw(body):
                raise InvalidParamsError(found)
            request.tenant = body.get("tenant") or ""
        if call.query:
            request.query_params = _read_query(call.query, request.query_params)
            request.tenant = request.query_params.get("tenant", "")
        response = await call.endpoint(request)
        if isinstance(response, JSONResponse):
            response.headers["Content-Type"] = self._media_type(request)
        return response

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        payload: dict[str, Any] = build_rest_error_payload(error)
        status: int = payload["error"]["code"]
        if self._version != PROTOCOL_VERSION_1_0:
            # Where clients of 0.3 look.
            code = JSON_RPC_ERROR_CODE_MAP.get(type(error), JSON_RPC_ERROR_CODE_MAP[InternalError])
            payload = {**payload, "code": code, "type": type(error).__name__, "message": error.message}
        return JSONResponse(payload, status, media_type=self._media_type(request))

    def _call_of(self, request: Request) -> RestCall:
        """Return what is called. HEAD is GET without the content, but of no stream: it would never end."""
        if request.method != "HEAD":
            return self._calls[request.method]
        call = self._calls["GET"]
        if call.operation == "SubscribeToTask":
            allowed = ", ".join(self._calls)
            raise MethodNotAllowedError(f"this address takes {allowed}, not HEAD", {"Allow": allowed})
        return call

    def _media_type(self, request: Request) -> str:
        """Return A2A's media type (1.0 §11.1), or that of all JSON to clients that ask for it."""
        accepted = [each.partition(";")[0].strip() for each in request.headers.get("accept", "").split(",")]
        is_plain = MEDIA_TYPES[0] in accepted and A2A_JSON_MEDIA_TYPE not in accepted
        return MEDIA_TYPES[0] if is_plain or self._version != PROTOCOL_VERSION_1_0 else A2A_JSON_MEDIA_TYPE


def _checked(kind: type[Message], params: object) -> dict[str, Any]:
    if found := flaw(kind, params):
        raise InvalidParamsError(found)
    return cast("dict[str, Any]", params)


def _read_query(kind: type[Message], sent: QueryParams) -> QueryParams:
    """Return the query under the names that the SDK reads, without what is empty; the last value counts.

    Raises:
        InvalidParamsError: a value does not fit.
    """
    fields = cast("Descriptor", kind.DESCRIPTOR).fields
    names = {name: field.json_name for field in fields for name in (field.json_name, field.name)}
    values = {names[name]: text for name, text in sent.multi_items() if name in names and text}
    words: dict[str, object] = {"true": True, "false": False}
    booleans = {field.json_name for field in fields if field.type == field.TYPE_BOOL}
    _checked(
        kind,
        {name: words.get(text.lower(), text) if name in booleans else text for name, text in values.items()},
    )
    return QueryParams(values)


# The HTTP+JSON binding of A2A 1.0 (§11): the SDK's dispatcher, whose failures are told in our words.

Result = TypeVar("Result")

_CONFIGS = "/tasks/{id}/pushNotificationConfigs"
_BODIES = {"SendMessage", "SendStreamingMessage", "CreateTaskPushNotificationConfig"}
_QUERIES = {"GetTask", "ListTasks", "ListTaskPushNotificationConfigs"}


def rest_calls(handler: RequestHandler) -> dict[str, dict[str, RestCall]]:
    """Return all addresses, and what each HTTP method does there."""
    sdk = _Dispatcher(handler)
    subscribe = _call("SubscribeToTask", sdk.on_subscribe_to_task)
    return {
        "/message:send": {"POST": _call("SendMessage", sdk.on_message_send)},
        "/message:stream": {"POST": _call("SendStreamingMessage", sdk.on_message_send_stream)},
        "/tasks": {"GET": _call("ListTasks", sdk.list_tasks)},
        "/tasks/{id}:cancel": {"POST": _call("CancelTask", sdk.on_cancel_task)},
        "/tasks/{id}:subscribe": {"GET": subscribe, "POST": subscribe},
        "/tasks/{id}": {"GET": _call("GetTask", sdk.on_get_task)},
        _CONFIGS: {
            "GET": _call("ListTaskPushNotificationConfigs", sdk.list_push_notifications),
            "POST": _call("CreateTaskPushNotificationConfig", sdk.set_push_notification),
        },
        f"{_CONFIGS}/{{push_id}}": {
            "GET": _call("GetTaskPushNotificationConfig", sdk.get_push_notification),
            "DELETE": _call("DeleteTaskPushNotificationConfig", sdk.delete_push_notification),
        },
        "/extendedAgentCard": {"GET": _call("GetExtendedAgentCard", sdk.handle_authenticated_agent_card)},
    }


def _call(operation: str, endpoint: Callable[[Request], Awaitable[Any]]) -> RestCall:
    message = cast("type[Message]", JsonRpcDispatcher.METHOD_TO_MODEL[operation])
    return RestCall(
        operation,
        endpoint,
        body=message if operation in _BODIES else None,
        query=message if operation in _QUERIES else None,
    )


class _Dispatcher(RestDispatcher):
    def __init__(self, handler: RequestHandler) -> None:
        # They would log the parameters that cannot be parsed, and the errors that we log ourselves.
        for module in (RestDispatcher.__module__, error_handlers.__name__):
            logging.getLogger(module).setLevel(logging.CRITICAL)
        super().__init__(handler, context_builder=CallContexts())

    async def list_tasks(self, request: Request) -> JSONResponse:
        """List tasks as GetTask shows them; the SDK would write out every empty field."""
        params = pb.ListTasksRequest()
        proto_utils.parse_params(request.query_params, params)
        response = await self._handle_non_streaming(
            request, partial(self.request_handler.on_list_tasks, params)
        )
        return JSONResponse(page_of_tasks(response))

    def _build_call_context(self, request: Request) -> ServerCallContext:
        context = super()._build_call_context(request)
        if isinstance(request, A2ARequest):
            context.tenant = context.tenant or request.tenant
        return context

    async def _handle_non_streaming(
        self, request: Request, handler_func: Callable[[ServerCallContext], Awaitable[Result]]
    ) -> Result:
        with a2a_errors_only():
            return await super()._handle_non_streaming(request, handler_func)

    async def _handle_streaming(
        self, request: Request, handler_func: Callable[[ServerCallContext], AsyncIterator[Any]]
    ) -> EventSourceResponse:
        with a2a_errors_only():
            events = cast("AsyncGenerator[Any]", handler_func(self._build_call_context(request)))
            return await stream_response(
                events, json_utils.dumps, lambda failure: build_rest_error_payload(as_a2a(failure))
            )


# The HTTP+JSON binding of A2A 0.3, under /v1: the SDK's adapter, and what it lacks.

_LEGACY_CONFIGS = "/v1/tasks/{id}/pushNotificationConfigs"

_OPERATIONS = {
    ("/v1/message:send", "POST"): "SendMessage",
    ("/v1/message:stream", "POST"): "SendStreamingMessage",
    ("/v1/tasks/{id}:cancel", "POST"): "CancelTask",
    ("/v1/tasks/{id}:subscribe", "GET"): "SubscribeToTask",
    ("/v1/tasks/{id}:subscribe", "POST"): "SubscribeToTask",
    ("/v1/tasks/{id}", "GET"): "GetTask",
    (_LEGACY_CONFIGS, "GET"): "ListTaskPushNotificationConfigs",
    (_LEGACY_CONFIGS, "POST"): "CreateTaskPushNotificationConfig",
    (f"{_LEGACY_CONFIGS}/{{push_id}}", "GET"): "GetTaskPushNotificationConfig",
    (f"{_LEGACY_CONFIGS}/{{push_id}}", "DELETE"): "DeleteTaskPushNotificationConfig",
    ("/v1/card", "GET"): "GetExtendedAgentCard",
}

_LEGACY_BODIES: dict[str, type[Message]] = {
    "SendMessage": pb03.SendMessageRequest,
    "SendStreamingMessage": pb03.SendMessageRequest,
    "CreateTaskPushNotificationConfig": pb03.CreateTaskPushNotificationConfigRequest,
}
_LEGACY_QUERIES: dict[str, type[Message]] = {"GetTask": pb03.GetTaskRequest}


def legacy_rest_calls(handler: RequestHandler) -> dict[str, dict[str, RestCall]]:
    """Return all addresses, and what each HTTP method does there."""
    calls: dict[str, dict[str, RestCall]] = {}
    for (path, method), endpoint in _Adapter(handler).routes().items():
        operation = _OPERATIONS[path, method]
        body, query = _LEGACY_BODIES.get(operation), _LEGACY_QUERIES.get(operation)
        call = RestCall(operation, endpoint, body, query, legacy_upload_flaw)
        calls.setdefault(path, {})[method] = call
    return calls


class _Adapter(REST03Adapter):
    """Differs from the SDK's: it deletes push configs, and tells errors before a stream and in it."""

    def __init__(self, handler: RequestHandler) -> None:
        super().__init__(handler, context_builder=CallContexts())
        self.handler.handler03 = LegacyHandler(handler)

    def routes(self) -> dict[tuple[str, str], Callable[[Request], Any]]:
        return {
            **super().routes(),
            (_LEGACY_CONFIGS, "POST"): partial(self._handle_request, self._set_push_notification),
            (f"{_LEGACY_CONFIGS}/{{push_id}}", "DELETE"): partial(
                self._handle_request, self._delete_push_notification
            ),
        }

    async def _handle_request(
        self, method: Callable[[Request, ServerCallContext], Awaitable[Any]], request: Request
    ) -> Response:
        return JSONResponse(await method(request, self._context_builder.build(request)))

    async def _handle_streaming_request(
        self, method: Callable[[Request, ServerCallContext], AsyncIterable[Any]], request: Request
    ) -> EventSourceResponse:
        events = cast("AsyncGenerator[Any]", method(request, self._context_builder.build(request)))
        return await stream_response(
            events, json_utils.dumps, lambda failure: build_rest_error_payload(as_a2a(failure))
        )

    async def _set_push_notification(self, request: Request, context: ServerCallContext) -> dict[str, Any]:
        """Set a config of the task in the address; the SDK reads task and id from elsewhere in the body.

        The body is the request, as the SDK's clients send it, or its `config` alone, as the definition of the
        service says.
        """
        message = pb03.CreateTaskPushNotificationConfigRequest()
        body: dict[str, Any] = await request.json()
        if "config" not in body:
            body = {"config": body}
            if found := flaw(pb03.CreateTaskPushNotificationConfigRequest, body):
                raise InvalidParamsError(found)
        ParseDict(body, message, ignore_unknown_fields=True)
        message.parent = f"tasks/{request.path_params['id']}"
        config = message.config.push_notification_config
        config.id = config.id or message.config_id or message.config.name.rpartition("/")[2]
        cast("A2ARequest", request).replace_body(MessageToJson(message).encode())
        return await self.handler.set_push_notification(request, context)

    async def _delete_push_notification(self, request: Request, context: ServerCallContext) -> dict[str, Any]:
        params = types03.DeleteTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )
        await self.handler.handler03.on_delete_task_push_notification_config(
            types03.DeleteTaskPushNotificationConfigRequest(id="", params=params), context
        )
        return {}
