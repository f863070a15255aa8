"""What is answered where nothing is served, or what serves it fails in a way that nobody foresaw."""

from http import HTTPStatus

from a2a.utils.error_handlers import build_rest_error_payload
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from everloop.gateway.errors import to_a2a
from everloop.gateway.http_errors import AddressUnknownError, HttpError, MethodNotAllowedError, status_of

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
