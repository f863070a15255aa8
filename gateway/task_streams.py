"""Following a task: a snapshot, then everything after it."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import structlog

from everloop.gateway.callers import viewer_of_view
from everloop.gateway.endings import Endings
from everloop.gateway.event_fanout import EventFanout, Subscription
from everloop.gateway.snapshots import Snapshots
from everloop.gateway.turns import Step, UntilEnd
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.views.interface import Snapshot, position_order

_log = structlog.get_logger()


class TaskStreams:
    """Snapshots followed by events, without a gap or a repeat."""

    def __init__(self, snapshots: Snapshots, endings: Endings, fanout: EventFanout) -> None:
        self._snapshots = snapshots
        self._endings = endings
        self._fanout = fanout

    async def follow(
        self, snapshot: Snapshot, until: UntilEnd, *, seconds: float | None = None, after: str | None = None
    ) -> AsyncGenerator[Step]:
        """Yield the snapshot, then the events after it, until `until` is over or the process stops.

        Waits for `seconds` at most (None: as long as it takes). Where the stream was lost, a fresh snapshot
        takes its place in between. With `after`, a position that the stream holds, what comes after it is
        yielded instead of the snapshot, which is newer.
        """
        deadline = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds
        while True:
            if after is None:
                yield snapshot
            is_over = until.is_over(snapshot)
            if is_over and (after is None or is_reached(snapshot, after)):
                return
            task_id = snapshot.view.task_id
            on_idle = partial(self._endings.check_soon, task_id)
            async with (
                self._fanout.subscribe(task_id, after or snapshot.position, on_idle) as events,
                _closing(events, deadline),
            ):
                async for event in events:
                    yield event
                    if until.is_over(event) or (is_over and is_reached(snapshot, event.position)):
                        return
            if not events.is_lost:
                return
            _log.warning("event stream lost, sending a fresh snapshot", **task_fields(snapshot.view))
            snapshot, after = await self._snapshots.take(task_id, viewer_of_view(snapshot.view)), None


def is_reached(snapshot: Snapshot, position: str) -> bool:
    """Whether who is at this position knows all that is in the snapshot."""
    return position_order(position) >= position_order(snapshot.position)


@asynccontextmanager
async def _closing(events: Subscription, deadline: float) -> AsyncGenerator[None]:
    """Close the subscription at a time of the loop's clock; unlike a cancellation this loses nothing."""
    if math.isinf(deadline):
        yield
        return
    timer = asyncio.get_running_loop().call_at(deadline, events.close)
    try:
        yield
    finally:
        timer.cancel()
