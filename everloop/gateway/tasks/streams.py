"""Following a task: a snapshot, then all later events."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Self

import structlog

from everloop.gateway.context import viewer_of_view
from everloop.gateway.tasks.fanout import EventFanout, Subscription
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.snapshots import Snapshots
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.log.log_types import Snapshot, StreamedEvent, is_position, position_order
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState

# Conditions that end the stream of a client. Pure.

StreamItem = Snapshot | StreamedEvent
"""Items of a followed task."""


class UntilEnd:
    """Follow a task until it has ended.

    For SubscribeToTask: A2A 1.0 §3.1.6 ends its stream at a terminal state, so it stays open while the
    task waits for its user.
    """

    def is_over(self, item: StreamItem) -> bool:
        """Whether this item is the last. Call it for every item, in order."""
        state = _state_of(item)
        return state is not None and state.is_terminal


class UntilReply(UntilEnd):
    """Follow a task until it has ended, or waits for its user after it has received `message_id`.

    For SendMessage (A2A 1.0 §3.2.2: a blocking call returns at a terminal or interrupted state) and
    SendStreamingMessage (§11.7: the same for its stream): the reply to one message. A task that waited
    for this message, `is_answer`, still shows the old state for a moment, which is not the reply. A
    question that the task asked before it received another message is a reply, and is still open.
    """

    def __init__(self, message_id: str, *, is_answer: bool) -> None:
        self._message_id = message_id
        self._taken_in = not is_answer

    def is_over(self, item: StreamItem) -> bool:
        self._taken_in = self._taken_in or self._message_id in _messages_of(item)
        state = _state_of(item)
        return super().is_over(item) or (self._taken_in and state is not None and state.is_interrupted)


class UntilTakenIn(UntilEnd):
    """Follow a task until it has received `message_id`, or has ended: its question is answered."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id

    def is_over(self, item: StreamItem) -> bool:
        return super().is_over(item) or self._message_id in _messages_of(item)


def _state_of(item: StreamItem) -> TaskState | None:
    if isinstance(item, Snapshot):
        return item.view.status.state
    return item.event.state if isinstance(item.event, StatusChanged) else None


def _messages_of(item: StreamItem) -> set[str]:
    if isinstance(item, Snapshot):
        return set(item.message_ids)
    if isinstance(item.event, StatusChanged):
        return {message.message_id for message in item.event.received}
    return set()


_log = structlog.get_logger()


class TaskStreams:
    """Snapshots followed by events, without a gap or a repeat."""

    def __init__(self, snapshots: Snapshots, reconciler: Reconciler, fanout: EventFanout) -> None:
        self._snapshots = snapshots
        self._reconciler = reconciler
        self._fanout = fanout

    async def follow(
        self, snapshot: Snapshot, until: UntilEnd, *, seconds: float | None = None, after: str | None = None
    ) -> AsyncGenerator[StreamItem]:
        """Yield the snapshot, then the events after it, until `until` is over or the process stops.

        Ends after `seconds` (None: no limit). A new snapshot replaces lost events. With `after`, a
        position that the stream holds, the events after it replace the snapshot, which is newer. An end
        that a Reset has taken back is replaced by a new snapshot: clients stop at ends.
        """
        deadline = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds
        reached = after or snapshot.position
        while True:
            if after is None:
                yield snapshot
            is_over = until.is_over(snapshot)
            if is_over and (after is None or is_reached(snapshot, after)):
                return
            task_id = snapshot.view.task_id
            on_idle = partial(self._reconciler.check_soon, task_id)
            async with (
                self._fanout.subscribe(task_id, after or snapshot.position, on_idle) as events,
                _closing(events, deadline),
            ):
                async for event in events:
                    if _was_taken_back(event, snapshot):
                        events.lose()
                        break
                    yield event
                    reached = event.position
                    if until.is_over(event) or (is_over and is_reached(snapshot, event.position)):
                        return
            if not events.is_lost:
                return
            _log.warning(
                "events lost, or an end taken back: sending a fresh snapshot", **task_fields(snapshot.view)
            )
            snapshot, after = await self._renewed(snapshot, reached), None

    async def _renewed(self, snapshot: Snapshot, reached: str) -> Snapshot:
        """Return the task again, from its workflow if Redis was set back to before `reached`."""
        renewed = await self._snapshots.take(snapshot.view.task_id, viewer_of_view(snapshot.view))
        is_set_back = position_order(renewed.position) < position_order(reached)
        return await self._snapshots.completed(renewed) if is_set_back else renewed


def is_reached(snapshot: Snapshot, position: str) -> bool:
    """Whether a client at this position has received all events in the snapshot."""
    return position_order(position) >= position_order(snapshot.position)


def _was_taken_back(step: StreamedEvent, snapshot: Snapshot) -> bool:
    """Whether this is an end of the task that a Reset had taken back before the snapshot."""
    event, now = step.event, snapshot.view.status
    if not isinstance(event, StatusChanged) or not event.state.is_terminal:
        return False
    return not is_reached(snapshot, step.position) and (event.state, event.at) != (now.state, now.at)


@asynccontextmanager
async def _closing(events: Subscription, deadline: float) -> AsyncGenerator[None]:
    """Close the subscription at a time of the loop's clock. Unlike a cancellation this loses no event."""
    if math.isinf(deadline):
        yield
        return
    timer = asyncio.get_running_loop().call_at(deadline, events.close)
    try:
        yield
    finally:
        timer.cancel()


# Ids of streamed events: the position at which a reconnecting client resumes (`Last-Event-ID`).
#
# Source: HTML, §9.2 (server-sent events). An id is the position of the event in the stream of its task, and
# the state of the task then, for clients of the events extension, whose events repeat it.

LAST_EVENT_ID = "last-event-id"
"""Header of a client that resumes."""

EVENT_ID = "everloop.event_id"
"""Key in a call's state: the id of the last yielded event, if it has one."""


@dataclass(frozen=True)
class EventId:
    """Event after which a client resumes, and its last state.

    `state` is that of the task, for clients of the events extension.
    """

    position: str
    state: TaskState | None = None

    @property
    def at(self) -> datetime:
        """Time of the event in the stream, by the store's clock."""
        return datetime.fromtimestamp(position_order(self.position)[0] / 1000, UTC)

    def __str__(self) -> str:
        return f"{self.position},{self.state}" if self.state else self.position

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse an id from a client, None if it is malformed."""
        position, _, state = text.partition(",")
        if not is_position(position) or state not in {"", *TaskState}:
            return None
        return cls(position, TaskState(state) if state else None)
