"""Streams of server-sent events, the same for every binding over HTTP."""

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import sse_starlette
from a2a.utils import json_utils
from sse_starlette import EventSourceResponse

from everloop.workflows.contract.parts import with_whole_numbers

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Some clients end lines at these too. In JSON they stand in strings only, which may escape them."""

ServerSentEvent = dict[str, Any]


def server_sent(content: object, **fields: str) -> ServerSentEvent:
    """Return an event with this JSON: on one line for every client, whole numbers as such."""
    return {"data": with_whole_numbers(json_utils.dumps(content)).translate(_LINE_ENDS), **fields}


class Comment(sse_starlette.ServerSentEvent):
    """A comment without the blank line that ends an event: httpx-sse, of a2a-sdk 0.3, would dispatch one."""

    def encode(self) -> bytes:
        return super().encode().removesuffix(self._sep.encode())


def event_stream(events: AsyncIterable[ServerSentEvent | Comment]) -> EventSourceResponse:
    """Return a response of events, with a comment whenever it is silent for 15 s."""
    return EventSourceResponse(events, ping_message_factory=lambda: Comment(comment="ping"))


def error_stream(error_data: object) -> EventSourceResponse:
    """Return a stream of one event, which tells why there is none: A2A 0.3 clients read nothing else."""

    async def events() -> AsyncGenerator[ServerSentEvent]:
        yield server_sent(error_data)

    return event_stream(events())
