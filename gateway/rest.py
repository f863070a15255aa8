"""The HTTP+JSON binding: what A2A 1.0 (§11) and 0.3 have in common."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_1_0
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError, InternalError, InvalidParamsError
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.call_context import check_version
from everloop.gateway.callers import caller_of_request
from everloop.gateway.http_errors import MethodNotAllowedError
from everloop.gateway.http_request import MEDIA_TYPES, A2ARequest
from everloop.gateway.http_shell import Binding
from everloop.gateway.proto_json import flaw
from everloop.gateway.scopes import check_operation


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
