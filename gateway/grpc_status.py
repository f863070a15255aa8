"""How gRPC says what went wrong: a status with details (A2A 1.0 §10.6, google.rpc.Status)."""

from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias

import grpc
from a2a.server.request_handlers import grpc_handler
from a2a.utils.errors import A2A_ERROR_REASONS, A2AError
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from opentelemetry import trace

from everloop.gateway.refusals import RefusalError

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

DOMAIN = "a2a-protocol.org"
DETAILS = "grpc-status-details-bin"
CHALLENGE = "www-authenticate"

LONGEST_TEXT = 1_000
"""Bytes of an error's text. It is sent twice, and clients take 8 KB of metadata."""


async def refuse(context: Context, error: A2AError, *, is_legacy: bool) -> NoReturn:
    """End a call with the status of an error; `is_legacy`: clients of A2A 0.3 find its name in the text."""
    code = _code(error)
    text = _shortened(f"{type(error).__name__}: {error.message}" if is_legacy else error.message)
    status = status_pb2.Status(code=code.value[0], message=text)
    for detail in _details(error):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    trailing: list[tuple[str, str | bytes]] = [(DETAILS, status.SerializeToString())]
    if isinstance(error, RefusalError) and error.challenge:
        trailing.append((CHALLENGE, error.challenge))
    trace.get_current_span().set_attribute("rpc.grpc.status_code", code.value[0])
    await context.abort(code, text, tuple(trailing))


def _code(error: A2AError) -> grpc.StatusCode:
    codes = grpc_handler._ERROR_CODE_MAP  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- the SDK's only table; ours stand there too
    return codes.get(type(error), grpc.StatusCode.INTERNAL)


def _details(error: A2AError) -> Iterator[Message]:
    yield error_details_pb2.ErrorInfo(
        reason=A2A_ERROR_REASONS.get(type(error), "INTERNAL_ERROR"), domain=DOMAIN
    )
    if isinstance(error, RefusalError) and error.retry_after is not None:
        yield error_details_pb2.RetryInfo(retry_delay=Duration(seconds=error.retry_after))


def _shortened(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= LONGEST_TEXT:
        return encoded.decode()
    return encoded[:LONGEST_TEXT].decode(errors="ignore") + "…"
