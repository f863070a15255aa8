"""Streams of server-sent events, the same on every binding over HTTP."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from a2a.utils import json_utils
from sse_starlette import EventSourceResponse

from everloop.gateway.event_ids import ServerSentEvent

RECONNECT_AFTER = 1000
"""Milliseconds after which a client of a gateway that stops should connect again, to another one."""

Item = TypeVar("Item")


async def stream_response(
    items: AsyncGenerator[Item],
    data: Callable[[Item], str],
    error_data: Callable[[Exception], Any],
    *,
    error_event: bool = True,
) -> EventSourceResponse:
    """Return the response that streams all items. What fails before the first one is raised.

    A later failure is told as the last event: `error_event` gives it the name "error".
    """
    try:
        first = [await anext(items)]
    except StopAsyncIteration:
        first = []

    async def events() -> AsyncGenerator[ServerSentEvent]:
        async with aclosing(items):
            for item in first:
                yield {"data": data(item)}
            try:
                async for item in items:
                    yield {"data": data(item)}
            except Exception as failure:  # noqa: BLE001 -- whatever it is, the client is told in its own terms
                named = {"event": "error"} if error_event else {}
                yield {**named, "data": json_utils.dumps(error_data(failure))}

    return EventSourceResponse(events())


def error_stream(error_data: object) -> EventSourceResponse:
    """Return a stream of one event, which tells why there is none: A2A 0.3 clients read nothing else."""

    async def events() -> AsyncGenerator[ServerSentEvent]:
        yield {"data": json_utils.dumps(error_data)}

    return EventSourceResponse(events())


async def with_farewell(
    events: AsyncGenerator[ServerSentEvent], is_stopping: Callable[[], bool]
) -> AsyncGenerator[dict[str, Any]]:
    """Tell clients of a gateway that stops to connect again, where `Last-Event-ID` lets them go on."""
    async with aclosing(events):
        async for event in events:
            yield dict(event)
    if is_stopping():
        yield {"comment": "this server stops: connect again with Last-Event-ID", "retry": RECONNECT_AFTER}
