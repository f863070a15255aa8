"""The JSON-RPC binding over HTTP: A2A 1.0 (§9) and 0.3 on one endpoint."""

import unicodedata
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from a2a.compat.v0_3 import types as types03
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
)
from pydantic import BaseModel, JsonValue
from starlette.responses import JSONResponse, Response

from everloop.agents.registry import AgentRegistry
from everloop.gateway.bindings.endpoint import Endpoint, begin_call
from everloop.gateway.bindings.legacy import LEGACY_REQUESTS, serve_legacy
from everloop.gateway.bindings.sse import error_stream
from everloop.gateway.http.http_errors import as_a2a, status_of
from everloop.gateway.http.requests import A2ARequest, HttpContext
from everloop.gateway.operations.operation import LEGACY_OPERATIONS, OPERATIONS, Operation
from everloop.gateway.requests.fields import MAX_ID_BYTES, MAX_PARTS
from everloop.gateway.requests.proto import INT32_MAX, is_strict_base64, read_params
from everloop.workflows.contract.parts import NO_DOUBLE, has_doubles

if TYPE_CHECKING:
    from a2a.server.request_handlers.request_handler import RequestHandler

RequestId = str | int | None

_MEMBERS = {"jsonrpc", "id", "method", "params"}

MAX_ID = 2**63
"""Upper bound of numeric request ids."""


class JsonRpcEndpoint(Endpoint):
    """Answers JSON-RPC requests; errors have status 200, unless HTTP has one for them."""

    def __init__(self, http: HttpContext, agents: AgentRegistry, handler: "RequestHandler") -> None:
        super().__init__(http, agents)
        self._handler = handler

    async def answer(self, request: A2ARequest) -> Response:
        """Check envelope (JSON-RPC 2.0 §4), version, scope and parameters, then run the operation."""
        body = await request.json()
        request.rpc_id = _read_id(body)
        method, params = _read_call(body)
        if operation := OPERATIONS.get(method):
            context = begin_call(request, operation, PROTOCOL_VERSION_1_0, ("jsonrpc", method), method)
            return await self._respond(request, operation, params, context)
        if operation := LEGACY_OPERATIONS.get(method):
            context = begin_call(request, operation, PROTOCOL_VERSION_0_3, ("jsonrpc", method), method)
            return await self._respond_legacy(request, operation, body, context)
        raise MethodNotFoundError(f"no such method; this server has {', '.join(OPERATIONS)}")

    def error(self, error: A2AError, request: A2ARequest) -> Response:
        return JSONResponse(_error(request, error))

    async def _respond(
        self, request: A2ARequest, operation: Operation, params: object, context: ServerCallContext
    ) -> Response:
        message = read_params(operation.params, params)
        context.tenant = getattr(message, "tenant", "")
        result = getattr(self._handler, operation.method)(message, context)

        def write(result: object) -> dict[str, Any]:
            return {"jsonrpc": "2.0", "id": request.rpc_id, "result": operation.to_json(result)}

        return await self.respond_with(request, result, operation, write, partial(_error, request))

    async def _respond_legacy(
        self, request: A2ARequest, operation: Operation, body: object, context: ServerCallContext
    ) -> Response:
        """Answer in A2A 0.3. A stream that fails to start is one event, unless HTTP has a status for it."""
        params = read_legacy_params(operation, body)
        result = serve_legacy(self._handler, operation, params, context)

        def write(result: object) -> object:
            written = _legacy_json(result)  # of a stream it is an answer already
            return (
                written
                if operation.is_stream
                else {"jsonrpc": "2.0", "id": request.rpc_id, "result": written}
            )

        try:
            # Clients of 0.3 know errors by what they hold: an event with a name would be another one to them.
            return await self.respond_with(
                request, result, operation, write, partial(_error, request), error_event=False
            )
        except A2AError as error:
            if status_of(error) or not operation.is_stream:  # HTTP tells it
                raise
            return error_stream(_error(request, error))


def _error(request: A2ARequest, failure: Exception) -> object:
    error = as_a2a(failure)
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), JSON_RPC_ERROR_CODE_MAP[InternalError])
    described = {"code": code, "message": str(error), "data": build_error_details(error)}
    return {"jsonrpc": "2.0", "id": request.rpc_id, "error": described}


def read_legacy_params(operation: Operation, body: object) -> BaseModel:
    """Parse a request of A2A 0.3.

    Raises:
        InvalidParamsError, ValidationError: the parameters are invalid.
    """
    params = cast("dict[str, object]", body).get("params") if isinstance(body, dict) else None
    if (count := _count_parts(params)) > MAX_PARTS:
        raise InvalidParamsError(f"message.parts has {count} parts; one message may have {MAX_PARTS}")
    if not has_doubles(cast("JsonValue", params)):
        raise InvalidParamsError(f"the request {NO_DOUBLE}")
    request = LEGACY_REQUESTS[operation.name].model_validate(body)
    sent: Any = getattr(request, "params", None)
    for holder in (sent, getattr(sent, "configuration", None)):
        length: int | None = getattr(holder, "history_length", None)
        # As the messages of A2A 1.0, as which requests are passed on, can hold it.
        if length is not None and abs(length) > INT32_MAX:
            raise InvalidParamsError("historyLength has to be a whole number of 32 bits")
    message: types03.Message | None = getattr(sent, "message", None)
    for index, part in enumerate(message.parts if message else ()):
        file: Any = getattr(part.root, "file", None)
        if not is_strict_base64(getattr(file, "bytes", "")):
            raise InvalidParamsError(
                f"message.parts[{index}].file.bytes is no base64; encode the bytes of the file (RFC 4648 §4)"
            )
    return request


def _count_parts(params: object) -> int:
    """Count the parts of a message before the SDK parses them, which is slow."""
    message = cast("dict[str, object]", params).get("message") if isinstance(params, dict) else None
    parts = cast("dict[str, object]", message).get("parts") if isinstance(message, dict) else None
    return len(cast("list[object]", parts)) if isinstance(parts, list) else 0


def _legacy_json(result: object) -> object:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [_legacy_json(each) for each in cast("list[object]", result)] if result is not None else None


def _read_id(body: object) -> RequestId:
    """Return the id for the response; null without a valid one."""
    match cast("dict[str, object]", body).get("id") if isinstance(body, dict) else None:
        case str(text) if _is_id(text):
            return text
        case int(number) if not isinstance(number, bool) and abs(number) < MAX_ID:
            return number
        case _:
            return None


def _is_id(text: str) -> bool:
    """Return True if an id can be echoed without enlarging the response."""
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
        InvalidRequestError: it is not a request; the text gives the reason.
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
