"""The JSON-RPC binding over HTTP: A2A 1.0 (§9) and 0.3 on one endpoint."""

import logging
import sys
import unicodedata
from typing import Any, cast

from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError, MethodNotFoundError
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.auth.scopes import check_operation
from everloop.gateway.bindings.context import CallContexts, check_version
from everloop.gateway.bindings.http_errors import as_a2a
from everloop.gateway.bindings.jsonrpc_legacy import LegacyJsonRpc, legacy_flaw
from everloop.gateway.bindings.requests import A2ARequest
from everloop.gateway.bindings.shell import Binding
from everloop.gateway.context import caller_of_request
from everloop.gateway.errors import note_refusal
from everloop.gateway.requests.messages import MAX_ID_BYTES
from everloop.gateway.requests.proto import flaw, page_of_tasks

RequestId = str | int | None

_MEMBERS = {"jsonrpc", "id", "method", "params"}

MAX_ID = 2**63
"""Below which numbers are ids of requests."""


class JsonRpcBinding(Binding):
    """Answers JSON-RPC requests; the HTTP status of errors is 200, but for those that HTTP has one for."""

    def __init__(self, handler: RequestHandler) -> None:
        self._dispatcher = _Dispatcher(handler)

    async def respond(self, request: A2ARequest) -> Response:
        return await self._dispatcher.handle_requests(request)

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        return JSONResponse(build_error_response(None, error))


class _Dispatcher(JsonRpcDispatcher):
    """The SDK's dispatcher, which is handed nothing but requests that it can read."""

    def __init__(self, handler: RequestHandler) -> None:
        # It would log the parameters that it cannot parse, and the errors that we log ourselves.
        logging.getLogger(JsonRpcDispatcher.__module__).setLevel(logging.CRITICAL)
        super().__init__(handler, context_builder=CallContexts(), enable_v0_3_compat=True)
        self._v03_adapter = LegacyJsonRpc(handler)

    async def handle_requests(self, request: Request) -> Response:
        """Check the envelope (JSON-RPC 2.0 §4), the version and the parameters, then let the SDK answer."""
        body = await request.json()
        request_id = _read_id(body)
        try:
            method, params = _read_call(body)
            check_operation(caller_of_request(request), method)
            self._check(method, params, request)
        except A2AError as error:
            if isinstance(request, A2ARequest):
                note_refusal(error, request.call_state)
            return JSONResponse(build_error_response(request_id, error))
        if isinstance(request, A2ARequest):
            request.name_operation("jsonrpc", method)
        return await super().handle_requests(request)

    def _check(self, method: str, params: object, request: Request) -> None:
        if method in self.METHOD_TO_MODEL:
            check_version(request, PROTOCOL_VERSION_1_0, method)
            found = flaw(cast("type[Message]", self.METHOD_TO_MODEL[method]), params)
        elif method in LegacyJsonRpc.METHOD_TO_MODEL:
            check_version(request, PROTOCOL_VERSION_0_3, method)
            found = legacy_flaw(params)
        else:
            raise MethodNotFoundError(f"no such method; this server has {', '.join(self.METHOD_TO_MODEL)}")
        if found:
            raise InvalidParamsError(found)

    async def _handle_list_tasks(
        self, request_obj: pb.ListTasksRequest, context: ServerCallContext
    ) -> dict[str, Any]:
        """List tasks as GetTask shows them; the SDK would write out every empty field."""
        return page_of_tasks(await self.request_handler.on_list_tasks(request_obj, context))

    def _generate_error_response(
        self, request_id: RequestId, error: Exception | JSONRPCError | A2AError
    ) -> JSONResponse:
        # The SDK calls this while it handles what went wrong, whose text it would pass on.
        failure = sys.exception() or cast("Exception", error)
        return JSONResponse(build_error_response(request_id, as_a2a(failure)))


def _read_id(body: object) -> RequestId:
    """Return the id to answer with; null if there is none that can be."""
    match cast("dict[str, object]", body).get("id") if isinstance(body, dict) else None:
        case str(text) if _is_id(text):
            return text
        case int(number) if not isinstance(number, bool) and abs(number) < MAX_ID:
            return number
        case _:
            return None


def _is_id(text: str) -> bool:
    """Whether a text can be sent back as it came, in an answer as small as any."""
    if len(text) > MAX_ID_BYTES or any(unicodedata.category(each) in {"Cc", "Cs"} for each in text):
        return False
    return len(text.encode()) <= MAX_ID_BYTES


def _check_id(sent: dict[str, Any]) -> None:
    if "id" not in sent:
        raise InvalidRequestError("id is missing; A2A has no notifications: send an id and get an answer")
    if sent["id"] is not None and _read_id(sent) is None:
        raise InvalidRequestError(
            f"id has to be a text of at most {MAX_ID_BYTES} bytes without control characters, "
            "a whole number of 64 bits, or null"
        )


def _read_call(body: object) -> tuple[str, object]:
    """Return the method and the parameters of a request.

    Raises:
        InvalidRequestError: it is none; the text says why.
    """
    if isinstance(body, list):
        raise InvalidRequestError("the body is a list; A2A has no batches: send one request at a time")
    if not isinstance(body, dict):
        raise InvalidRequestError('the body is no request; send {"jsonrpc": "2.0", "id": …, "method": …}')
    sent = cast("dict[str, Any]", body)
    if sent.get("jsonrpc") != "2.0":
        raise InvalidRequestError('jsonrpc has to be "2.0"')
    if sent.keys() - _MEMBERS:
        raise InvalidRequestError(f"a request has the members {', '.join(sorted(_MEMBERS))}, and no others")
    _check_id(sent)
    method, params = sent.get("method"), sent.get("params", {})
    if not isinstance(method, str) or not method:
        raise InvalidRequestError("method is missing; it has to be a text")
    if params is not None and not isinstance(params, dict | list):
        raise InvalidRequestError("params has to be an object")
    return method, cast("object", params)
