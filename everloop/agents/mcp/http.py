"""HTTP under MCP: the failure of one request becomes the answer to that request alone.

The SDK ends a whole session, with all calls that are running in it, when one request cannot be sent, and
hides the status of an error. Here both become JSON-RPC errors with the kind of failure.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import httpx2
from mcp_types import INTERNAL_ERROR
from opentelemetry import propagate

from everloop.agents.mcp.mcp_errors import Fault
from everloop.runtime.outbound.bounds import AnswerTooLargeError
from everloop.runtime.outbound.response_bounds import UNCOMPRESSED, bounding, check_encoding, is_event_stream

CONNECTING = 10.0
"""Seconds to connect, and to send each piece of a request. Answers may take as long as their calls."""

CONNECTIONS = 1000
"""Maximum concurrent requests of one session; each call holds a connection until it is answered."""

SESSION_HEADER = "mcp-session-id"
_LONGEST_KIND = 100
"""Maximum characters of a content type."""


class FaultClient(httpx2.AsyncClient):
    """Sends requests with `headers`, and turns failures into JSON-RPC errors."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(
            headers={**UNCOMPRESSED, **headers},
            timeout=httpx2.Timeout(CONNECTING, read=None),
            limits=httpx2.Limits(max_connections=CONNECTIONS),
            event_hooks={"response": [_bound]},
        )

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:  # noqa: ANN401 -- the SDK's
        """Send a request of the SDK, in the trace of its call."""
        propagate.inject(request.headers)
        try:
            response = await super().send(request, **settings)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError):
            return _faulty(request, Fault.UNREACHABLE, 503)
        except httpx2.TransportError:
            return _faulty(request, Fault.LOST, 502)
        except AnswerTooLargeError:
            return _faulty(request, Fault.COMPRESSED, 502)
        fault = await _fault_of(request, response)
        if fault is None:
            return response
        await response.aclose()
        if fault is Fault.FOREIGN:
            kind = response.headers.get("content-type", "").partition(";")[0].strip()[:_LONGEST_KIND]
            answer = f"HTTP {response.status_code} with {kind or 'a body of no type'}"
            return _faulty(request, fault, 502, answer)
        return _faulty(request, fault, response.status_code)


async def _bound(response: httpx2.Response) -> None:
    """Limit the size of an answer; the SDK treats a larger one as unreadable."""
    check_encoding(response.headers)
    error = httpx2.SSEError if is_event_stream(response.headers) else httpx2.StreamError
    await bounding(error)(response)


_KINDS = ("application/json", "text/event-stream")
"""Content types of MCP answers."""


async def _fault_of(request: httpx2.Request, response: httpx2.Response) -> Fault | None:
    status, kind = response.status_code, response.headers.get("content-type", "").lower()
    if not response.is_error:
        is_answer = request.method == "POST" and status == HTTPStatus.OK
        return None if not is_answer or kind.startswith(_KINDS) else Fault.FOREIGN
    if status in {401, 403}:
        return Fault.REFUSED
    told = await _json_of(response) if kind.startswith(_KINDS[0]) else {}
    # 404 is specified by MCP; many servers built after the TypeScript SDK's examples send 400.
    if status in {400, 404} and SESSION_HEADER in request.headers and request.method == "POST":
        return None if _is_answer(told, request) else Fault.GONE
    if "error" in told and "jsonrpc" in told:
        return None
    return Fault.BUSY if status in {429, 503} else Fault.FAILED


async def _json_of(response: httpx2.Response) -> dict[str, Any]:
    try:
        told: object = json.loads(await response.aread())
    except (ValueError, RecursionError, httpx2.StreamError, httpx2.TransportError):
        return {}
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


def _is_answer(told: Mapping[str, Any], request: httpx2.Request) -> bool:
    """Return True if an error is about this request, and not about its session."""
    asked: dict[str, Any] = json.loads(request.content)
    is_own = "error" in told and told.get("id") == asked.get("id", "")
    return is_own and "session" not in json.dumps(told["error"]).lower()


def _faulty(request: httpx2.Request, fault: Fault, status: int, answer: str = "") -> httpx2.Response:
    data = {"fault": fault.value, "answer": answer or f"HTTP {status}"}
    error = {"code": INTERNAL_ERROR, "message": fault.value, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
