"""The HTTP+JSON binding of A2A 0.3, under /v1: the SDK's adapter, and what it lacks."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from functools import partial
from typing import Any, cast

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.rest_adapter import REST03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.utils import json_utils
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToJson, ParseDict
from google.protobuf.message import Message
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.call_context import CallContexts
from everloop.gateway.http_errors import as_a2a
from everloop.gateway.http_request import A2ARequest
from everloop.gateway.http_streams import stream_response
from everloop.gateway.legacy_handler import LegacyHandler
from everloop.gateway.proto_json import flaw
from everloop.gateway.raw_parts import legacy_upload_flaw
from everloop.gateway.rest import RestCall

_CONFIGS = "/v1/tasks/{id}/pushNotificationConfigs"

_OPERATIONS = {
    ("/v1/message:send", "POST"): "SendMessage",
    ("/v1/message:stream", "POST"): "SendStreamingMessage",
    ("/v1/tasks/{id}:cancel", "POST"): "CancelTask",
    ("/v1/tasks/{id}:subscribe", "GET"): "SubscribeToTask",
    ("/v1/tasks/{id}:subscribe", "POST"): "SubscribeToTask",
    ("/v1/tasks/{id}", "GET"): "GetTask",
    (_CONFIGS, "GET"): "ListTaskPushNotificationConfigs",
    (_CONFIGS, "POST"): "CreateTaskPushNotificationConfig",
    (f"{_CONFIGS}/{{push_id}}", "GET"): "GetTaskPushNotificationConfig",
    (f"{_CONFIGS}/{{push_id}}", "DELETE"): "DeleteTaskPushNotificationConfig",
    ("/v1/card", "GET"): "GetExtendedAgentCard",
}

_BODIES: dict[str, type[Message]] = {
    "SendMessage": pb03.SendMessageRequest,
    "SendStreamingMessage": pb03.SendMessageRequest,
    "CreateTaskPushNotificationConfig": pb03.CreateTaskPushNotificationConfigRequest,
}
_QUERIES: dict[str, type[Message]] = {"GetTask": pb03.GetTaskRequest}


def legacy_rest_calls(handler: RequestHandler) -> dict[str, dict[str, RestCall]]:
    """Return all addresses, and what each HTTP method does there."""
    calls: dict[str, dict[str, RestCall]] = {}
    for (path, method), endpoint in _Adapter(handler).routes().items():
        operation = _OPERATIONS[path, method]
        body, query = _BODIES.get(operation), _QUERIES.get(operation)
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
            (_CONFIGS, "POST"): partial(self._handle_request, self._set_push_notification),
            (f"{_CONFIGS}/{{push_id}}", "DELETE"): partial(
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
