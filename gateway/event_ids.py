"""Ids of streamed events: where a client that lost its connection goes on (`Last-Event-ID`).

Source: HTML, §9.2 (server-sent events). An id is the position of the event in the stream of its task, and
what else has to be known to go on behind it without having read what came before.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote, unquote

from stores.task_views import is_position, position_order
from workflows.contract.tasks import TaskState

LAST_EVENT_ID = "last-event-id"
"""The header of a client that goes on."""

EVENT_ID = "everloop.event_id"
"""Where a call's state holds the id of the event that was yielded last, if it has one."""

ServerSentEvent = dict[str, str]


@dataclass(frozen=True)
class EventId:
    """Behind which event a client goes on, and what it knew then.

    `state` is that of the task, for clients of the events extension. `hidden` are artifacts that have begun,
    but of which the client was not shown anything, so that what follows does not append to them.
    """

    position: str
    state: TaskState | None = None
    hidden: frozenset[str] = frozenset()

    @property
    def at(self) -> datetime:
        """When the event came into the stream, by the store's clock."""
        return datetime.fromtimestamp(position_order(self.position)[0] / 1000, UTC)

    def __str__(self) -> str:
        words = [self.position, self.state or "", *(quote(name, safe="") for name in sorted(self.hidden))]
        return ",".join(words).rstrip(",")

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the id that a client sent back, None if it is none of ours."""
        position, *words = text.split(",")
        state, *hidden = words or [""]
        if not is_position(position) or state not in {"", *TaskState}:
            return None
        return cls(position, TaskState(state) if state else None, frozenset(map(unquote, hidden)))


async def with_ids(
    events: AsyncGenerator[ServerSentEvent], state: Mapping[str, Any]
) -> AsyncGenerator[ServerSentEvent]:
    """Give each event of a response its id.

    Events are made one at a time, when they are asked for, so that the id in the state is that of the event
    which has just come. An error has none: the client asks again for what it could not be told.
    """
    async with aclosing(events):
        async for event in events:
            event_id = None if "event" in event else state.get(EVENT_ID)
            yield {**event, "id": str(event_id)} if event_id else event
