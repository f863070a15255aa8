"""Decrypts what Temporal keeps, for Temporal's UI and CLI: its remote data converter protocol.

    POST /codec/decode    payloads as Temporal has them → what they hold
    POST /codec/encode    the other way, for what an operator sends to a workflow

Both take and return `temporal.api.common.v1.Payloads` as JSON. They are there if payloads are encrypted and
callers are authenticated. They take the scope `operator`, which must be named: what everybody's tasks hold is
not for those who may see their own.
"""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import structlog
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from opentelemetry import trace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from everloop.gateway.auth.access import AccessControl, Anybody
from everloop.gateway.auth.scopes import OPERATOR, require_scope
from everloop.gateway.http.errors import headers_of, status_of
from everloop.gateway.http.requests import A2ARequest, BodyLimits, recognise
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.temporal.codec import EncryptionCodec

_ALLOWED_HEADERS = "Authorization, Content-Type, X-API-Key, X-Namespace"
_PREFLIGHT_HOLDS = "600"
"""Seconds for which a browser need not ask again."""

_log = structlog.get_logger()

Conversion = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


class PayloadsUnreadableError(Exception):
    """The body is no payloads as JSON."""


def codec_routes(
    converter: DataConverter, access: AccessControl, limits: BodyLimits, origins: Sequence[str]
) -> list[Route]:
    """Return the addresses; none if nothing is encrypted, or callers are not authenticated.

    `origins` are those of the web pages that may call them.
    """
    codec = converter.payload_codec
    if not (isinstance(codec, EncryptionCodec) and codec.is_on) or isinstance(access.authenticator, Anybody):
        return []
    endpoint = CodecEndpoint(access, limits, origins)

    async def decode(payloads: Sequence[Payload]) -> list[Payload]:
        # In its whole: some are references to blobs. A raw value is a payload that nobody looks into.
        hints: list[type] = [RawValue] * len(payloads)
        return [value.payload for value in await converter.decode(payloads, hints)]

    return [
        Route("/codec/decode", endpoint.serving(decode), methods=["POST", "OPTIONS"]),
        Route("/codec/encode", endpoint.serving(codec.encode), methods=["POST", "OPTIONS"]),
    ]


class CodecEndpoint:
    """Answers requests of operators, and of their browsers when these ask whether they may (CORS)."""

    def __init__(self, access: AccessControl, limits: BodyLimits, origins: Sequence[str]) -> None:
        self._access = access
        self._limits = limits
        self._origins = frozenset(origins)

    def serving(self, convert: Conversion) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers requests for a conversion."""

        async def serve(request: Request) -> Response:
            if request.method == "OPTIONS":
                answer = Response(status_code=HTTPStatus.NO_CONTENT)
            else:
                answer = await self._answer(request, convert)
            answer.headers.update(self._cors(request))
            return answer

        return serve

    async def _answer(self, request: Request, convert: Conversion) -> Response:
        read = A2ARequest(request.scope, request.receive, self._limits, trace.INVALID_SPAN)
        try:
            require_scope(await recognise(request, self._access), OPERATOR)
            payloads = _payloads_of(await read.json())
            converted = Payloads(payloads=await convert(payloads.payloads))
            return JSONResponse(MessageToDict(converted), headers={"Cache-Control": "no-store"})
        except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
            return _refusal(failure)
        finally:
            read.let_go()

    def _cors(self, request: Request) -> dict[str, str]:
        origin = request.headers.get("origin", "")
        if origin not in self._origins:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": _PREFLIGHT_HOLDS,
        }


def _payloads_of(body: object) -> Payloads:
    """Return the payloads of a body.

    Raises:
        PayloadsUnreadableError: it is something else.
    """
    if not isinstance(body, dict):
        raise PayloadsUnreadableError
    try:
        return ParseDict(body, Payloads())  # pyright: ignore[reportUnknownArgumentType] -- JSON as it came
    except (ParseError, ValueError, RecursionError) as error:
        raise PayloadsUnreadableError from error


def _refusal(failure: Exception) -> Response:
    status, message, headers = _explained(failure)
    return JSONResponse({"message": message}, status, {"Cache-Control": "no-store", **headers})


def _explained(failure: Exception) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of an answer."""
    match failure:
        case A2AError():
            return status_of(failure) or HTTPStatus.BAD_REQUEST, str(failure), headers_of(failure)
        case PayloadsUnreadableError():
            expected = '{"payloads": [{"metadata": {"encoding": base64}, "data": base64}]}'
            return HTTPStatus.BAD_REQUEST, f"expected payloads as JSON: {expected}", {}
        case EncryptionError() | ApplicationError():
            return HTTPStatus.UNPROCESSABLE_ENTITY, str(failure), {}
        case BlobsUnavailableError():
            text = "a payload is in the blob store, which cannot be used now; ask again"
            return HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "5"}
        case _:
            _log.error("codec failed", exc_info=failure)
            return HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the gateway's log has it", {}
