"""HTTP under MCP: what goes wrong with one request becomes the answer to that request alone.

The SDK ends a whole session, with all calls that are running in it, when one request cannot be sent, and
says nothing of the status of an error. Here both become JSON-RPC errors that say which it was.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import httpx2
from mcp_types import INTERNAL_ERROR
from opentelemetry import propagate

from everloop.runtime.bounded_answers import (
    UNCOMPRESSED,
    AnswerTooLargeError,
    bounding,
    check_encoding,
    is_event_stream,
)

CONNECTING = 10.0
"""Seconds to connect, and to send each piece of a request. Answers may take as long as their calls."""

CONNECTIONS = 1000
"""How many requests of one session may be under way; each call holds a connection until it is answered."""

SESSION_HEADER = "mcp-session-id"


class Fault(StrEnum):
    """What went wrong below MCP."""

    UNREACHABLE = "unreachable"
    """The request was not sent."""

    LOST = "lost"
    """It was sent, or a part of it; no answer came."""

    REFUSED = "refused"
    """401 or 403."""

    GONE = "gone"
    """The session is not known (any more)."""

    COMPRESSED = "compressed"
    """The answer is, though it was asked for as it is."""

    FAILED = "failed"
    """Another status of 400 or more, without an explanation in JSON."""


class FaultClient(httpx2.AsyncClient):
    """Sends requests with `headers`, and turns what goes wrong into JSON-RPC errors."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(
            headers={**UNCOMPRESSED, **headers},
            timeout=httpx2.Timeout(CONNECTING, read=None),
            limits=httpx2.Limits(max_connections=CONNECTIONS),
            event_hooks={"response": [_bound]},
        )

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:  # noqa: ANN401 -- the SDK's
        """Send a request, as the SDK does all of them, in the trace of the call that it is for."""
        propagate.inject(request.headers)
        try:
            response = await super().send(request, **settings)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError):
            return _faulty(request, Fault.UNREACHABLE, 503)
        except httpx2.TransportError:
            return _faulty(request, Fault.LOST, 502)
        except AnswerTooLargeError:
            return _faulty(request, Fault.COMPRESSED, 502)
        fault = _fault_of(request, response)
        if fault is None:
            return response
        await response.aclose()
        return _faulty(request, fault, response.status_code)


async def _bound(response: httpx2.Response) -> None:
    """Bound an answer; too large a one ends in what the SDK takes for an answer that cannot be read."""
    check_encoding(response.headers)
    error = httpx2.SSEError if is_event_stream(response.headers) else httpx2.StreamError
    await bounding(error)(response)


def fault_in(data: object) -> tuple[Fault, int] | None:
    """Return what went wrong, and the status, of the data of a JSON-RPC error; None if MCP itself failed."""
    match data:
        case {"fault": str() as kind, "status": int() as status} if kind in set(Fault):
            return Fault(kind), status
        case _:
            return None


def _fault_of(request: httpx2.Request, response: httpx2.Response) -> Fault | None:
    status = response.status_code
    if status in {401, 403}:
        return Fault.REFUSED
    # 404 is what MCP wants; 400 what many servers say that are made after the TypeScript SDK's examples.
    if status in {400, 404} and SESSION_HEADER in request.headers and request.method == "POST":
        return Fault.GONE
    explains = response.headers.get("content-type", "").startswith("application/json")
    return Fault.FAILED if response.is_error and not explains else None


def _faulty(request: httpx2.Request, fault: Fault, status: int) -> httpx2.Response:
    error = {"code": INTERNAL_ERROR, "message": fault.value, "data": {"fault": fault.value, "status": status}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
