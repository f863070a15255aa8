"""Server-sent events as a plain HTTP client of a binding reads them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.gateway.harness import RunningGateway
from tests.support.wires.events import Event, events_of
from tests.support.wires.operations import Json
from tests.support.wires.wires import HttpWire, http_wires, reply_of


@asynccontextmanager
async def stream(
    at: RunningGateway | HttpWire, operation: str, params: Json, last_id: str = "", **headers: str
) -> AsyncGenerator[AsyncGenerator[Event]]:
    """Yield the events of a stream, after `last_id` if given; a gateway is called on JSON-RPC 1.0.

    Raises: Refusal: there is no stream.
    """
    wire = at if isinstance(at, HttpWire) else http_wires(at.http)["JSON-RPC 1.0"]
    named = {**headers, "Last-Event-ID": last_id} if last_id else headers
    async with wire.http.stream(**wire.call(operation, params, named)) as response:
        if not response.headers["Content-Type"].startswith("text/event-stream"):
            await response.aread()
            raise reply_of(response).refusal or AssertionError(response.text)
        yield events_of(response)


async def all_of(
    at: RunningGateway | HttpWire, operation: str, params: Json, last_id: str = "", **headers: str
) -> list[Event]:
    """Return all events of a stream."""
    async with stream(at, operation, params, last_id, **headers) as events:
        return [event async for event in events]


def message(text: str, message_id: str = "m") -> Json:
    """Return parameters of 1.0 that send a text."""
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}}
