"""What the bindings over HTTP refuse by themselves, and how any failure of theirs becomes an A2A error.

A2A 1.0 has no errors for what HTTP itself can be asked wrongly; each of these has a status of its own, and
is told in the shape of the binding (§9.5 and §11.6).
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

from everloop.gateway.errors import RefusalError, known_as, to_a2a


@known_as(-32600, 404, "NOT_FOUND", "ADDRESS_UNKNOWN")
class AddressUnknownError(RefusalError):
    """Nothing is served at this address."""


@known_as(-32600, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED")
class MethodNotAllowedError(RefusalError):
    """The address exists, and takes other HTTP methods."""


@known_as(-32600, 421, "FAILED_PRECONDITION", "MISDIRECTED")
class MisdirectedError(RefusalError):
    """The server is called by a name that is not its own."""


@known_as(-32600, 403, "PERMISSION_DENIED", "CROSS_SITE")
class CrossSiteError(RefusalError):
    """A web page of another site asks for a change."""


@known_as(-32005, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
class MediaTypeError(RefusalError):
    """The body is not declared as JSON, or is compressed."""


@known_as(-32600, 413, "INVALID_ARGUMENT", "CONTENT_TOO_LARGE")
class ContentTooLargeError(RefusalError):
    """The body is larger than this server reads."""


@known_as(-32600, 408, "DEADLINE_EXCEEDED", "CONTENT_TOO_SLOW")
class ContentTooSlowError(RefusalError):
    """The body did not arrive in time."""


@known_as(-32600, 404, "NOT_FOUND", "NOT_FOUND")
class NotFoundError(RefusalError):
    """There is no such thing, or it is somebody else's: both are told in the same words."""


@known_as(-32600, 409, "ABORTED", "CONFLICT")
class ConflictError(RefusalError):
    """Something else has come first, or stands in the way."""


@known_as(-32600, 412, "FAILED_PRECONDITION", "PRECONDITION_FAILED")
class PreconditionError(RefusalError):
    """A condition of the request does not hold: what it is about has changed."""


@known_as(-32600, 416, "OUT_OF_RANGE", "RANGE_NOT_SATISFIABLE")
class RangeError(RefusalError):
    """There are no such bytes."""


# The SDK knows it on JSON-RPC only, where its status is 200.
known_as(-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR")(JSONParseError)

_SHOWN = 100
"""How many characters of a wrong address, or of the name of a wrong field, are repeated."""

_TYPE_NAME = re.compile("[A-Z][A-Za-z]*Part|File[A-Za-z]+|[a-z-]*\\[.*")
"""What pydantic puts between the names of fields: the members of a union that it tried."""


def status_of(error: A2AError) -> int | None:
    """Return the HTTP status of what is refused before, or instead of, being served; None: it is not."""
    return A2A_ERROR_MAPPING[type(error)].http_code if isinstance(error, RefusalError) else None


def as_a2a(failure: Exception) -> A2AError:
    """Return what a client is told: nothing of our insides, and nothing of what it sent."""
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


def violation(failure: ValidationError, whole: str = "params") -> str:
    """Name the first field that does not fit, of a union the first in the member that `kind` names.

    `whole` names what has the fields.
    """
    violations = failure.errors(include_input=False, include_url=False, include_context=False)
    others = {each["loc"][:-1] for each in violations if each["type"] == "literal_error"}
    meant = [each for each in violations if not any(each["loc"][: len(other)] == other for other in others)]
    first = (meant or violations)[0]
    steps = [step for step in first["loc"] if isinstance(step, int) or not _TYPE_NAME.fullmatch(step)]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    path = path.removeprefix(".params").removeprefix(".")[:_SHOWN] or whole  # a client chooses the names
    if first["type"].startswith("recursion_"):
        return f"{path} is nested too deeply"
    return f"{path} does not fit: {str(first['msg']).lower()}"


# What is answered where nothing is served, or what serves it fails in a way that nobody foresaw.


async def unserved(request: Request, failure: Exception) -> Response:
    """Answer a call of an address, or with an HTTP method, that there is not."""
    path, headers = request.url.path[:_SHOWN], dict(getattr(failure, "headers", None) or {})
    error: RefusalError = AddressUnknownError(
        f"nothing is at {path!r}; agent cards at /.well-known/agent-card.json name the addresses of agents"
    )
    if isinstance(failure, HTTPException) and failure.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names them in the order of a set, another one in each process.
        headers["Allow"] = allowed = ", ".join(sorted(headers.get("Allow", "").split(", ")))
        error = MethodNotAllowedError(f"{path!r} takes {allowed}, not {request.method[:_SHOWN]}", headers)
    return refusal(error)


async def failed(_: Request, failure: Exception) -> Response:
    """Answer a call that failed for a reason of ours: with a reference to the log, and nothing of it."""
    return refusal(to_a2a(failure))


# Answers of addresses that are of no binding.


def refusal(error: A2AError) -> Response:
    """Return an error as REST of A2A 1.0 has it, with the headers that it brings."""
    headers = {"Cache-Control": "no-store", **getattr(error, "headers", {})}
    status = A2A_ERROR_MAPPING[type(error)].http_code
    return JSONResponse(build_rest_error_payload(error), status, headers)
