"""What the bindings over HTTP refuse by themselves, and how any failure of theirs becomes an A2A error.

A2A 1.0 has no errors for what HTTP itself can be asked wrongly; each of these has a status of its own, and
is told in the shape of the binding (§9.5 and §11.6).
"""

import re
import uuid
from collections.abc import Mapping
from http import HTTPStatus

import grpc
import structlog
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InvalidParamsError, JSONParseError
from google.protobuf.json_format import ParseError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.errors import Numbers, RefusalError, http_status, register, to_a2a

_log = structlog.get_logger()


class HttpError(A2AError):
    """The request cannot be read as one of ours. `headers` go with the answer."""

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.headers = headers or {}


class AddressUnknownError(HttpError):
    """Nothing is served at this address."""


class MethodNotAllowedError(HttpError):
    """The address exists, and takes other HTTP methods."""


class MisdirectedError(HttpError):
    """The server is called by a name that is not its own."""


class CrossSiteError(HttpError):
    """A web page of another site asks for a change."""


class MediaTypeError(HttpError):
    """The body is not declared as JSON."""


class ContentTooLargeError(HttpError):
    """The body is larger than this server reads."""


class ContentTooSlowError(HttpError):
    """The body did not arrive in time."""


_TYPE_NAME = re.compile("[A-Z][A-Za-z]*Part|File[A-Za-z]+|[a-z-]*\\[.*")
"""What pydantic puts between the names of fields: the members of a union that it tried."""


_ERRORS: dict[type[A2AError], Numbers] = {
    CrossSiteError: Numbers(-32600, 403, grpc.StatusCode.PERMISSION_DENIED, "CROSS_SITE"),
    MisdirectedError: Numbers(-32600, 421, grpc.StatusCode.FAILED_PRECONDITION, "MISDIRECTED"),
    AddressUnknownError: Numbers(-32600, 404, grpc.StatusCode.NOT_FOUND, "ADDRESS_UNKNOWN"),
    MethodNotAllowedError: Numbers(-32600, 405, grpc.StatusCode.UNIMPLEMENTED, "METHOD_NOT_ALLOWED"),
    ContentTooSlowError: Numbers(-32600, 408, grpc.StatusCode.DEADLINE_EXCEEDED, "CONTENT_TOO_SLOW"),
    ContentTooLargeError: Numbers(-32600, 413, grpc.StatusCode.INVALID_ARGUMENT, "CONTENT_TOO_LARGE"),
    MediaTypeError: Numbers(-32005, 415, grpc.StatusCode.INVALID_ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED"),
    # The SDK knows it on JSON-RPC only, where its status is 200.
    JSONParseError: Numbers(-32700, 400, grpc.StatusCode.INVALID_ARGUMENT, "PARSE_ERROR"),
}

register(_ERRORS)


def status_of(error: A2AError) -> int | None:
    """Return the HTTP status of what is refused before, or instead of, being served; None: it is not."""
    if isinstance(error, RefusalError):
        return http_status(error)
    return _ERRORS[type(error)].http if isinstance(error, HttpError) else None


def headers_of(error: A2AError) -> dict[str, str]:
    """Return the headers that tell a client what to do about an error."""
    if isinstance(error, HttpError):
        return {**error.headers}
    headers: dict[str, str] = {}
    if isinstance(error, RefusalError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, RefusalError) and error.challenge:
        headers["WWW-Authenticate"] = error.challenge
    return headers


def as_a2a(failure: BaseException) -> A2AError:
    """Return what a client is told: nothing of our insides, and nothing of what it sent."""
    match failure:
        case A2AError():
            return failure
        case ValidationError():
            return InvalidParamsError(_violation(failure))
        case ParseError() | RecursionError() | UnicodeError() | OverflowError():
            return InvalidParamsError(
                "the parameters do not fit the operation, are nested too deeply, or have a number that is "
                "too large; see the specification for the fields and types of each"
            )
        case Exception():
            return to_a2a(failure)
        case _:
            raise failure


def _violation(failure: ValidationError) -> str:
    """Name the first field that does not fit, of a union the first in the member that `kind` names."""
    violations = failure.errors(include_input=False, include_url=False, include_context=False)
    others = {each["loc"][:-1] for each in violations if each["type"] == "literal_error"}
    meant = [each for each in violations if not any(each["loc"][: len(other)] == other for other in others)]
    first = (meant or violations)[0]
    steps = [step for step in first["loc"] if isinstance(step, int) or not _TYPE_NAME.fullmatch(step)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = path.removeprefix(".params").removeprefix(".") or "params"
    return f"{path} does not fit: {str(first['msg']).lower()}"


# What is answered where nothing is served, or what serves it fails in a way that nobody foresaw.

_SHOWN = 100
"""How many characters of a wrong address are repeated."""


async def unserved(request: Request, failure: Exception) -> Response:
    """Answer a call of an address, or with an HTTP method, that there is not."""
    path, headers = request.url.path[:_SHOWN], dict(getattr(failure, "headers", None) or {})
    error: HttpError = AddressUnknownError(
        f"nothing is at {path!r}; agent cards at /.well-known/agent-card.json name the addresses of agents"
    )
    if isinstance(failure, HTTPException) and failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names them in the order of a set, another one in each process.
        headers["Allow"] = allowed = ", ".join(sorted(headers.get("Allow", "").split(", ")))
        error = MethodNotAllowedError(f"{path!r} takes {allowed}, not {request.method[:_SHOWN]}", headers)
    return JSONResponse(build_rest_error_payload(error), status_of(error) or 500, error.headers)


async def failed(_: Request, failure: Exception) -> Response:
    """Answer a call that failed for a reason of ours: with a reference to the log, and nothing of it."""
    return JSONResponse(build_rest_error_payload(to_a2a(failure)), HTTPStatus.INTERNAL_SERVER_ERROR)


# Answers of addresses that are of no binding.


class RequestError(Exception):
    """The request is answered with this status; the client reads the text."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


def error_response(failure: Exception, what: str) -> Response:
    """Return the answer to a failure of `what`.

    What we did not foresee is logged whole under a reference, which is all that the client is told.
    """
    error = failure if isinstance(failure, RequestError) else _explain(failure, what)
    answer = {"code": error.status.value, "status": error.status.name, "message": str(error)}
    return JSONResponse({"error": answer}, error.status, {"Cache-Control": "no-store", **error.headers})


def _explain(failure: Exception, what: str) -> RequestError:
    if isinstance(failure, A2AError):
        status = HTTPStatus(status_of(failure) or HTTPStatus.BAD_REQUEST)
        return RequestError(status, str(failure), headers_of(failure))
    reference = uuid.uuid4().hex[:12]
    _log.error(f"{what} failed", reference=reference, exc_info=failure)
    return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error, reference {reference}")
