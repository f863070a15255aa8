"""One reader of event streams per process, which serves every subscriber.

A slow subscriber, or one that starts before the reader's position, reads the stream separately until it
has caught up. No other subscriber waits for it.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import structlog

from everloop.gateway.errors import STORE_FAILURES
from everloop.gateway.gateway_instruments import stream_lag, subscribers
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import StreamedEvent, position_order

READ_WAIT = 5.0
"""Seconds that one read waits for events."""

RETRY_DELAY = 0.5
"""Seconds until the next read after a failure of the store."""

PAGE = 50
"""Events that a subscriber holds at a time while it catches up: they are not shared."""

_log = structlog.get_logger()


OnIdle = Callable[[], object]


class Subscription:
    """Events of one task, in order, after a position. Iterating ends when the stream is lost or closed.

    A stream is lost when it no longer holds the event at our position (Redis was emptied, or the stream
    was trimmed past us), or when Redis has lost events before the next one. The subscriber then needs a
    new snapshot.
    """

    def __init__(
        self, fanout: "EventFanout", task_id: str, position: str, on_idle: OnIdle | None = None
    ) -> None:
        self._fanout = fanout
        self._task_id = task_id
        self._position = position
        self._on_idle = on_idle
        self._queue: deque[StreamedEvent] = deque()
        self._news = asyncio.Event()
        self._behind = False
        self._ended = False
        self.is_lost = False  # whether the iteration ended because of that

    @property
    def waiting(self) -> int:
        """Number of queued events."""
        return len(self._queue)

    def offer(self, event: StreamedEvent) -> None:
        """Queue an event from the reader; with a full queue, fall behind."""
        if self._behind:
            return
        if len(self._queue) >= self._fanout.queue_limit:
            self.fall_behind()
            return
        self._queue.append(event)
        self._news.set()

    def fall_behind(self) -> None:
        """Stop queueing, and read the stream directly from here on. Queued events are read again then."""
        self._queue.clear()
        self._behind = True
        self._news.set()

    def close(self) -> None:
        """End the iteration."""
        self._ended = True
        self._news.set()

    def lose(self) -> None:
        """End the iteration, because later events would mislead without a new snapshot."""
        self.is_lost = True
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamedEvent:
        while not self._ended:
            event = self._queue.popleft() if self._queue else None
            if event is None:
                await (self._catch_up() if self._behind else self._wait())
            elif position_order(event.position) > position_order(self._position):
                if event.follows_loss:
                    self.lose()
                    break
                self._position = event.position
                return event
        raise StopAsyncIteration

    async def _catch_up(self) -> None:
        """Read one page of the stream. After an empty page the reader's events follow without a gap."""
        # Before the read, so that the reader's events are queued meanwhile: none is before the page's end.
        self._behind = False
        try:
            page = await self._fanout.views.read({self._task_id: self._position}, wait=0, limit=PAGE)
            await self._check_that_it_is_held()
        except STORE_FAILURES:
            self._behind = True
            await asyncio.sleep(RETRY_DELAY)
            return
        if page:
            self._behind = True
            self._queue = deque(page)

    async def _wait(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(self._fanout.idle_check):
                await self._news.wait()
        except TimeoutError:
            await self._check_stream()

    async def _check_stream(self) -> None:
        try:
            await self._check_that_it_is_held()
            if self._on_idle:
                self._on_idle()
        except STORE_FAILURES as error:
            _log.debug("stream not checked", task_id=self._task_id, error=str(error))

    async def _check_that_it_is_held(self) -> None:
        if not await self._fanout.views.holds(self._task_id, self._position):
            self.lose()


@dataclass
class _Topic:
    """A task with subscribers, and the reader's position in its stream."""

    position: str
    subscriptions: set[Subscription] = field(default_factory=set[Subscription])
    opened_at: float = field(default_factory=time.time)


class EventFanout:
    """Reads the streams of all subscribed tasks at once.

    A subscriber has a queue of `queue_limit` events before it has to catch up by reading the stream.
    After `idle_check` seconds without an event it checks that its stream still exists.
    """

    def __init__(self, views: TaskViews, *, queue_limit: int = 1000, idle_check: float = 15.0) -> None:
        self.views = views
        self.queue_limit = queue_limit
        self.idle_check = idle_check
        self._topics: dict[str, _Topic] = {}
        self.is_closed = False  # whether every subscription ends because the process stops

    @property
    def subscribed_tasks(self) -> int:
        """Number of tasks with subscribers."""
        return len(self._topics)

    @property
    def waiting_events(self) -> int:
        """Number of queued events of all subscribers together."""
        return sum(one.waiting for topic in self._topics.values() for one in topic.subscriptions)

    async def run(self) -> None:
        """Read until cancelled. After a failure of the store, continue from the same positions."""
        failing = False
        while True:
            try:
                await self._read_once()
                failing = False
            except STORE_FAILURES as error:
                if not failing:
                    _log.warning("event reader waits for the task store", error=str(error))
                failing = True
                await asyncio.sleep(RETRY_DELAY)
            except Exception:  # noqa: BLE001 -- every subscriber depends on this loop: no defect may end it silently
                _log.exception("event reader failed")
                await asyncio.sleep(RETRY_DELAY)

    @asynccontextmanager
    async def subscribe(
        self, task_id: str, position: str, on_idle: OnIdle | None = None
    ) -> AsyncGenerator[Subscription]:
        """Yield a subscription to all events of a task after a position.

        `on_idle` is called after each idle check's time without an event.
        """
        topic = self._topics.get(task_id)
        is_new = topic is None
        topic = topic or self._topics.setdefault(task_id, _Topic(position))
        subscription = Subscription(self, task_id, position, on_idle)
        if position_order(position) < position_order(topic.position):
            subscription.fall_behind()
        if self.is_closed:
            subscription.close()
        topic.subscriptions.add(subscription)
        subscribers.add(1)
        try:
            if is_new:
                await self.views.wake()
            yield subscription
        finally:
            subscribers.add(-1)
            topic.subscriptions.discard(subscription)
            if not topic.subscriptions and self._topics.get(task_id) is topic:
                del self._topics[task_id]

    def close(self) -> None:
        """End every subscription, also later ones: the process is about to stop."""
        self.is_closed = True
        for topic in self._topics.values():
            for subscription in topic.subscriptions:
                subscription.close()

    async def _read_once(self) -> None:
        topics = dict(self._topics)
        positions = {task_id: topic.position for task_id, topic in topics.items()}
        for event in await self.views.read(positions, wait=READ_WAIT):
            topic = topics[event.task_id]
            # A topic that was replaced during the read may be at an earlier position than the read.
            if topic is self._topics.get(event.task_id):
                topic.position = event.position
                _record_lag(event, topic)
                for subscription in topic.subscriptions:
                    subscription.offer(event)
        await asyncio.sleep(0)  # finished subscribers leave first; their streams are not read again


def _record_lag(event: StreamedEvent, topic: _Topic) -> None:
    """Record the delay of an event, unless it was written before the subscription; clocks may differ."""
    written_at = position_order(event.position)[0] / 1000
    if written_at >= topic.opened_at:
        stream_lag.record(max(0.0, time.time() - written_at))
