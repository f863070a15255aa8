"""Decrypts what Temporal keeps, for Temporal's UI and CLI: its remote data converter protocol.

    POST /codec/decode    payloads as Temporal has them → what they hold
    POST /codec/encode    the other way, for what an operator sends to a workflow

Both take and return `temporal.api.common.v1.Payloads` as JSON. They are there if payloads are encrypted and
callers are authenticated. They take the scope `operator`, which must be named: what everybody's tasks hold is
not for those who may see their own.
"""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from opentelemetry import trace
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.auth.scopes import OPERATOR, require_scope
from everloop.gateway.http.errors import explain
from everloop.gateway.http.requests import A2ARequest, BodyLimits, recognise
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.temporal.codec import EncryptionCodec

_ALLOWED_HEADERS = ("Authorization", "Content-Type", "X-API-Key", "X-Namespace")
_EXPECTED = '{"payloads": [{"metadata": {"encoding": base64}, "data": base64}]}'

Conversion = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codec_routes(
    converter: DataConverter, access: AccessControl, limits: BodyLimits, origins: Sequence[str]
) -> list[Route]:
    """Return the addresses; none if nothing is encrypted, or callers are not authenticated.

    `origins` are those of the web pages that may call them.
    """
    codec = converter.payload_codec
    if not (isinstance(codec, EncryptionCodec) and codec.is_on) or access.authenticator.is_open:
        return []
    pages = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=("POST",), allow_headers=_ALLOWED_HEADERS
    )

    async def decode(payloads: Sequence[Payload]) -> list[Payload]:
        # In its whole: some are references to blobs. A raw value is a payload that nobody looks into.
        hints: list[type] = [RawValue] * len(payloads)
        return [value.payload for value in await converter.decode(payloads, hints)]

    def route(path: str, convert: Conversion) -> Route:
        async def serve(request: Request) -> Response:
            return await _answer(request, convert, access, limits)

        return Route(path, serve, methods=["POST", "OPTIONS"], middleware=[pages])

    return [route("/codec/decode", decode), route("/codec/encode", codec.encode)]


async def _answer(
    request: Request, convert: Conversion, access: AccessControl, limits: BodyLimits
) -> Response:
    read = A2ARequest(request.scope, request.receive, limits, trace.INVALID_SPAN)
    try:
        require_scope(await recognise(request, access), OPERATOR)
        payloads = _payloads_of(await read.json())
        converted = Payloads(payloads=await convert(payloads.payloads))
        return JSONResponse(MessageToDict(converted), headers={"Cache-Control": "no-store"})
    except Exception as failure:  # noqa: BLE001 -- the client gets JSON, and nothing of our insides
        refusal = explain(_named(failure), "codec")
        headers = {"Cache-Control": "no-store", **(refusal.headers or {})}
        return JSONResponse({"message": refusal.detail}, refusal.status_code, headers)
    finally:
        read.let_go()


def _payloads_of(body: object) -> Payloads:
    """Return the payloads of a body.

    Raises:
        HTTPException: it is something else.
    """
    try:
        if isinstance(body, dict):
            return ParseDict(cast("dict[str, Any]", body), Payloads())
    except (ParseError, ValueError, RecursionError):
        pass
    raise HTTPException(HTTPStatus.BAD_REQUEST, f"expected payloads as JSON: {_EXPECTED}")


def _named(failure: Exception) -> Exception:
    """Return what an operator is told of a failure of payloads; others as they are."""
    match failure:
        case EncryptionError() | ApplicationError():
            return HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(failure))
        case BlobsUnavailableError():
            text = "a payload is in the blob store, which cannot be used now; ask again"
            return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "5"})
        case _:
            return failure
