"""Decryption of Temporal's payloads for its UI and CLI: Temporal's remote data converter protocol.

    POST /codec/decode    payloads of Temporal → their plain values
    POST /codec/encode    the reverse, for values that an operator sends to a workflow

Both take and return `temporal.api.common.v1.Payloads` as JSON. They exist if payloads are encrypted and
callers are authenticated. They require the scope `operator`, which must be granted by name: callers may
read their own tasks without it, but not the payloads of all owners.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from a2a.utils.errors import A2A_ERROR_MAPPING, A2AError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from everloop.gateway.auth.scopes import OPERATOR, require_scope
from everloop.gateway.errors import RefusalError, UnavailableNowError, register_error
from everloop.gateway.http.requests import A2ARequest, HttpContext, HttpEndpoint
from everloop.gateway.services import Services
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.temporal.encryption_codec import EncryptionCodec

_ALLOWED_HEADERS = ("Authorization", "Content-Type", "X-API-Key", "X-Namespace")
_EXPECTED = '{"payloads": [{"metadata": {"encoding": base64}, "data": base64}]}'


@register_error(-32600, 422, "INVALID_ARGUMENT", "PAYLOAD_UNREADABLE")
class _PayloadError(RefusalError):
    """Payload of another format, or without a key for it."""


Conversion = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codec_routes(services: Services) -> list[Route]:
    """Return the addresses; an empty list without encryption or authentication."""
    converter, origins = services.client.data_converter, services.settings.codec_origins
    codec = converter.payload_codec
    if not (isinstance(codec, EncryptionCodec) and codec.is_on) or services.is_open:
        return []
    pages = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=("POST",), allow_headers=_ALLOWED_HEADERS
    )

    async def decode(payloads: Sequence[Payload]) -> list[Payload]:
        # With the complete converter, as some payloads are references to blobs. A raw value stays undecoded.
        hints: list[type] = [RawValue] * len(payloads)
        return [value.payload for value in await converter.decode(payloads, hints)]

    def route(path: str, convert: Conversion) -> Route:
        endpoint = _Endpoint(services.http, convert)
        return Route(path, endpoint, methods=["POST", "OPTIONS"], middleware=[pages])

    return [route("/codec/decode", decode), route("/codec/encode", codec.encode)]


class _Endpoint(HttpEndpoint):
    """Serves one of these addresses."""

    def __init__(self, http: HttpContext, convert: Conversion) -> None:
        super().__init__(http)
        self._convert = convert

    def name(self, scope: Scope) -> str:
        return f"POST {scope['path']}"

    async def respond(self, request: A2ARequest) -> Response:
        require_scope(request.caller, OPERATOR)
        payloads = _payloads_of(await request.json()).payloads
        try:
            converted = Payloads(payloads=await self._convert(payloads))
        except (EncryptionError, ApplicationError) as error:
            raise _PayloadError(str(error)) from None
        except BlobsUnavailableError:
            text = "a payload is in the blob store, which cannot be used now; ask again"
            raise UnavailableNowError(text, retry_after=5) from None
        return JSONResponse(MessageToDict(converted), headers={"Cache-Control": "no-store"})

    def refuse(self, error: A2AError, request: A2ARequest) -> Response:
        headers = {"Cache-Control": "no-store", **getattr(error, "headers", {})}
        return JSONResponse({"message": str(error)}, A2A_ERROR_MAPPING[type(error)].http_code, headers)


def _payloads_of(body: object) -> Payloads:
    """Return the payloads of a body.

    Raises:
        InvalidParamsError: the body has another structure.
    """
    try:
        if isinstance(body, dict):
            return ParseDict(cast("dict[str, Any]", body), Payloads())
    except (ParseError, ValueError, RecursionError):
        pass
    raise InvalidParamsError(f"expected payloads as JSON: {_EXPECTED}")
