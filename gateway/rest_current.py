"""The HTTP+JSON binding of A2A 1.0 (§11): the SDK's dispatcher, whose failures are told in our words."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.routes.rest_dispatcher import RestDispatcher
from a2a.types import a2a_pb2 as pb
from a2a.utils import error_handlers, json_utils, proto_utils
from a2a.utils.error_handlers import build_rest_error_payload
from google.protobuf.message import Message
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse

from everloop.gateway.call_context import CallContexts
from everloop.gateway.http_errors import a2a_errors_only, as_a2a
from everloop.gateway.http_request import A2ARequest
from everloop.gateway.http_streams import stream_response
from everloop.gateway.proto_json import page_of_tasks
from everloop.gateway.rest import RestCall

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
