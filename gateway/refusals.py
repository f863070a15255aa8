"""Answers of this server that A2A has no error for, made known to all bindings of the SDK.

A2A 1.0 §5.4 leaves authentication, authorisation, overload and outages to the statuses of HTTP and gRPC.
"""

from dataclasses import dataclass

import grpc
from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.request_handlers import grpc_handler, response_helpers
from a2a.utils import errors as sdk
from a2a.utils.errors import A2AError, ErrorMapping


class RefusalError(A2AError):
    """The call is refused before, or instead of, being served. `retry_after` is in seconds, None: never."""

    def __init__(self, message: str, *, retry_after: int | None = None, challenge: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.challenge = challenge


class UnauthenticatedError(RefusalError):
    """Nobody knows who calls. `challenge` is what HTTP's WWW-Authenticate says."""


class ForbiddenError(RefusalError):
    """The caller is known, and may not do this."""


class TooManyRequestsError(RefusalError):
    """The owner asks for more than a share."""


class TooManyHeadersError(RefusalError):
    """The request has more headers, or more metadata, than are read."""


class UnavailableNowError(RefusalError):
    """A server that we need does not answer."""


@dataclass(frozen=True)
class _Numbers:
    """How each binding says it. JSON-RPC leaves -32099 to -32000 to servers; A2A has taken some of them."""

    jsonrpc: int
    http: int
    grpc: grpc.StatusCode
    reason: str


_REFUSALS: dict[type[RefusalError], _Numbers] = {
    UnauthenticatedError: _Numbers(-32031, 401, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    ForbiddenError: _Numbers(-32032, 403, grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"),
    TooManyRequestsError: _Numbers(-32033, 429, grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS"),
    TooManyHeadersError: _Numbers(-32600, 431, grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_HEADERS"),
    UnavailableNowError: _Numbers(-32603, 503, grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
}


def http_status(refusal: RefusalError) -> int:
    """Return the HTTP status of a refusal, on every binding over HTTP."""
    return _REFUSALS[type(refusal)].http


for _kind, _numbers in _REFUSALS.items():
    _mapping = ErrorMapping(_numbers.http, _numbers.grpc.name, _numbers.reason)
    sdk.JSON_RPC_ERROR_CODE_MAP[_kind] = _numbers.jsonrpc
    sdk.A2A_ERROR_MAPPING[_kind] = _mapping
    sdk.A2A_ERROR_REASONS[_kind] = _numbers.reason
    response_helpers.EXCEPTION_MAP[_kind] = JSONRPCError
    grpc_handler._ERROR_CODE_MAP[_kind] = _numbers.grpc  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- the only way to a status of our own
