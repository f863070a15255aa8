"""Errors of HTTP itself, and the conversion of any failure of HTTP bindings to an A2A error.

A2A 1.0 has no errors for invalid HTTP requests. Each of these has its own status, and is sent in the
shape of the binding (§9.5 and §11.6).
"""

import re
from http import HTTPStatus

from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2A_ERROR_MAPPING, A2AError, InvalidParamsError, JSONParseError
from google.protobuf.json_format import ParseError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.errors import RefusalError, register_error, to_a2a


@register_error(-32600, 404, "NOT_FOUND", "ADDRESS_UNKNOWN")
class AddressUnknownError(RefusalError):
    """Nothing is served at this address."""


@register_error(-32600, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED")
class MethodNotAllowedError(RefusalError):
    """The address exists, and takes other HTTP methods."""


@register_error(-32600, 421, "FAILED_PRECONDITION", "MISDIRECTED")
class MisdirectedError(RefusalError):
    """The server is called by a name that is not its own."""


@register_error(-32600, 403, "PERMISSION_DENIED", "CROSS_SITE")
class CrossSiteError(RefusalError):
    """A web page of another site requests a change."""


@register_error(-32005, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
class MediaTypeError(RefusalError):
    """The body is not declared as JSON, or is compressed."""


@register_error(-32600, 413, "INVALID_ARGUMENT", "CONTENT_TOO_LARGE")
class ContentTooLargeError(RefusalError):
    """The body is larger than this server reads."""


@register_error(-32600, 408, "DEADLINE_EXCEEDED", "CONTENT_TOO_SLOW")
class ContentTooSlowError(RefusalError):
    """The body did not arrive in time."""


@register_error(-32600, 404, "NOT_FOUND", "NOT_FOUND")
class NotFoundError(RefusalError):
    """Missing object, or one of another owner: the same error for both."""


@register_error(-32600, 409, "ABORTED", "CONFLICT")
class ConflictError(RefusalError):
    """The request conflicts with the current state, or with an earlier request."""


@register_error(-32600, 412, "FAILED_PRECONDITION", "PRECONDITION_FAILED")
class PreconditionError(RefusalError):
    """A condition of the request does not hold: its object has changed."""


@register_error(-32600, 416, "OUT_OF_RANGE", "RANGE_NOT_SATISFIABLE")
class RangeError(RefusalError):
    """The range is outside of the content."""


# The SDK registers it for JSON-RPC only, where its status is 200.
register_error(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR")(JSONParseError)

_SHOWN = 100
"""Maximum characters of a wrong address, or of an invalid field's name, in an error."""

_TYPE_NAME = re.compile("[A-Z][A-Za-z]*Part|File[A-Za-z]+|[a-z-]*\\[.*")
"""Names that pydantic puts between those of fields: the members of a union that it tried."""


def status_of(error: A2AError) -> int | None:
    """Return the HTTP status of an error that replaces the operation's response, or None."""
    return A2A_ERROR_MAPPING[type(error)].http_code if isinstance(error, RefusalError) else None


def as_a2a(failure: Exception) -> A2AError:
    """Return the error for a client, without internals and without sent values."""
    match failure:
        case A2AError():
            return failure
        case ValidationError():
            return InvalidParamsError(violation(failure))
        case ParseError() | RecursionError() | UnicodeError() | OverflowError():
            return InvalidParamsError(
                "the parameters do not fit the operation, are nested too deeply, or have a number that is "
                "too large; see the specification for the fields and types of each"
            )
        case _:
            return to_a2a(failure)


def violation(failure: ValidationError, root: str = "params") -> str:
    """Return the first invalid field; of a union, the first in the member that `kind` names.

    `root` is the name of the complete object.
    """
    violations = failure.errors(include_input=False, include_url=False, include_context=False)
    others = {each["loc"][:-1] for each in violations if each["type"] == "literal_error"}
    meant = [each for each in violations if not any(each["loc"][: len(other)] == other for other in others)]
    first = (meant or violations)[0]
    steps = [step for step in first["loc"] if isinstance(step, int) or not _TYPE_NAME.fullmatch(step)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = path.removeprefix(".params").removeprefix(".")[:_SHOWN] or root  # a client chooses the names
    if first["type"].startswith("recursion_"):
        return f"{path} is nested too deeply"
    return f"{path} does not fit: {str(first['msg']).lower()}"


# Responses for unknown addresses, and for unexpected failures.


async def unserved(request: Request, failure: Exception) -> Response:
    """Respond to a call of an unknown address, or with an unsupported HTTP method."""
    path, headers = request.url.path[:_SHOWN], dict(getattr(failure, "headers", None) or {})
    error: RefusalError = AddressUnknownError(
        f"nothing is at {path!r}; agent cards at /.well-known/agent-card.json name the addresses of agents"
    )
    if isinstance(failure, HTTPException) and failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names them in the order of a set, which differs between processes.
        headers["Allow"] = allowed = ", ".join(sorted(headers.get("Allow", "").split(", ")))
        error = MethodNotAllowedError(f"{path!r} takes {allowed}, not {request.method[:_SHOWN]}", headers)
    return refusal(error)


async def failed(_: Request, failure: Exception) -> Response:
    """Respond to a call that failed unexpectedly: with a reference to the log, and none of its content."""
    return refusal(to_a2a(failure))


# Responses of addresses outside of all bindings.


def refusal(error: A2AError) -> Response:
    """Return an error in the form of REST of A2A 1.0, with its own headers."""
    headers = {"Cache-Control": "no-store", **getattr(error, "headers", {})}
    status = A2A_ERROR_MAPPING[type(error)].http_code
    return JSONResponse(build_rest_error_payload(error), status, headers)
