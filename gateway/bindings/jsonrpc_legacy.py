"""Methods of A2A 0.3 over JSON-RPC: the SDK's adapter, with the errors and answers that 0.3 wants."""

import logging
import sys
from collections.abc import AsyncGenerator
from typing import Any, cast

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.utils.errors import A2AError, InvalidParamsError
from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse

from everloop.gateway.bindings.context import CallContexts
from everloop.gateway.bindings.http_errors import as_a2a, status_of
from everloop.gateway.bindings.legacy import LegacyHandler
from everloop.gateway.bindings.shell import error_stream, stream_response
from everloop.gateway.requests.messages import MAX_PARTS
from everloop.gateway.requests.proto import INT32_MAX, legacy_file_flaw

_DELETE = "tasks/pushNotificationConfig/delete"


def legacy_flaw(params: object) -> str:
    """Return what is wrong with parameters that the SDK reads slowly, or misreads; empty: nothing."""
    sent = cast("dict[str, object]", params) if isinstance(params, dict) else {}
    message = sent.get("message")
    parts = cast("dict[str, object]", message).get("parts") if isinstance(message, dict) else None
    count = len(cast("list[object]", parts)) if isinstance(parts, list) else 0
    if count > MAX_PARTS:
        return f"message.parts has {count} parts; one message may have {MAX_PARTS}"
    return legacy_file_flaw(sent)


class LegacyJsonRpc(JSONRPC03Adapter):
    """Differs from the SDK's: parameters that do not fit are -32602, and deleting answers null.

    Errors have details. A stream that cannot begin is one event that says why, unless HTTP has a status for
    that.
    """

    def __init__(self, handler: RequestHandler) -> None:
        # It would log the parameters that do not fit.
        logging.getLogger(JSONRPC03Adapter.__module__).setLevel(logging.CRITICAL)
        super().__init__(handler, context_builder=CallContexts())
        self.handler = LegacyHandler(handler)

    def _generate_error_response(
        self, request_id: str | int | None, error: Exception | JSONRPCError
    ) -> JSONResponse:
        # The SDK calls this while it handles what went wrong, whose text it would pass on.
        failure = sys.exception() or cast("Exception", error)
        return JSONResponse(build_error_response(request_id, as_a2a(failure)))

    async def _process_non_streaming_request(
        self,
        request_id: str | int | None,
        request_obj: Any,  # noqa: ANN401 -- as the SDK declares it
        context: ServerCallContext,
    ) -> JSONResponse:
        _check_history_length(getattr(request_obj, "params", None))
        response = await super()._process_non_streaming_request(request_id, request_obj, context)
        if request_obj.method == _DELETE:
            return JSONResponse({"jsonrpc": "2.0", "id": request_id, "result": None})
        return response

    async def _process_streaming_request(
        self,
        request_id: str | int | None,
        request_obj: Any,  # noqa: ANN401 -- as the SDK declares it
        context: ServerCallContext,
    ) -> EventSourceResponse:
        _check_history_length(getattr(request_obj, "params", None))
        begin = (
            self.handler.on_message_send_stream
            if request_obj.method == "message/stream"
            else self.handler.on_subscribe_to_task
        )
        try:
            # Clients of 0.3 know errors by what they hold: an event with a name would be another one to them.
            return await stream_response(
                cast("AsyncGenerator[Any]", begin(request_obj, context)),
                lambda item: item.model_dump_json(by_alias=True, exclude_none=True),
                lambda failure: build_error_response(request_id, as_a2a(failure)),
                error_event=False,
            )
        except A2AError as error:
            if status_of(error):  # HTTP tells it
                raise
            return error_stream(build_error_response(request_id, error))


def _check_history_length(params: Any) -> None:  # noqa: ANN401 -- of any request of the SDK
    """Refuse a number that the messages of A2A 1.0, as which the SDK passes requests on, cannot hold."""
    for holder in (params, getattr(params, "configuration", None)):
        length: int | None = getattr(holder, "history_length", None)
        if length is not None and abs(length) > INT32_MAX:
            raise InvalidParamsError("historyLength has to be a whole number of 32 bits")
