"""Ids of streamed events: where a client that lost its connection goes on (`Last-Event-ID`).

Source: HTML, §9.2 (server-sent events). An id is the position of the event in the stream of its task, and
the state that the task was in, for clients of the events extension, whose events repeat it.
"""

from collections.abc import AsyncGenerator, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from everloop.stores.views.interface import is_position, position_order
from everloop.workflows.contract.parts import with_whole_numbers
from everloop.workflows.contract.tasks import TaskState

LAST_EVENT_ID = "last-event-id"
"""The header of a client that goes on."""

EVENT_ID = "everloop.event_id"
"""Where a call's state holds the id of the event that was yielded last, if it has one."""

ServerSentEvent = dict[str, str]


@dataclass(frozen=True)
class EventId:
    """Behind which event a client goes on, and what it knew then.

    `state` is that of the task, for clients of the events extension.
    """

    position: str
    state: TaskState | None = None

    @property
    def at(self) -> datetime:
        """When the event came into the stream, by the store's clock."""
        return datetime.fromtimestamp(position_order(self.position)[0] / 1000, UTC)

    def __str__(self) -> str:
        return f"{self.position},{self.state}" if self.state else self.position

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the id that a client sent back, None if it is none of ours."""
        position, _, state = text.partition(",")
        if not is_position(position) or state not in {"", *TaskState}:
            return None
        return cls(position, TaskState(state) if state else None)


_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Some clients end lines at these too. In JSON they stand in strings only, which may escape them."""


async def with_ids(
    events: AsyncGenerator[ServerSentEvent], state: MutableMapping[str, Any]
) -> AsyncGenerator[ServerSentEvent]:
    """Give each event of a response its id; its data are one line for every client, whole numbers as such.

    Events are made one at a time, when they are asked for, so that the id in the state is that of the event
    which has just come. An error has none: the client asks again for what it could not be told.
    """
    async with aclosing(events):
        async for event in events:
            event_id = state.pop(EVENT_ID, None)
            named = {"id": str(event_id)} if event_id else {}
            data = with_whole_numbers(event["data"]).translate(_LINE_ENDS)
            yield {**event, "data": data, **named}
