"""The one reader of a process: order, catching up, failures of the store."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.gateway.tasks.fanout import EventFanout, Subscription
from everloop.runtime.redis import cancel, connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, StreamedEvent
from everloop.workflows.contract.events import StatusChanged, Thought
from everloop.workflows.contract.tasks import TaskState
from tests.gateway.harness import a_view, unique
from tests.support.servers.processes import running_valkey


@asynccontextmanager
async def running(fanout: EventFanout) -> AsyncGenerator[EventFanout]:
    """Run the reader until the block ends."""
    reader = asyncio.create_task(fanout.run())
    try:
        yield fanout
    finally:
        await cancel(reader)


async def publish(views: TaskViews, task_id: str, *numbers: int) -> None:
    """Publish events that carry these numbers."""
    events = [Thought(iteration=1, text=str(number)) for number in numbers]
    await views.publish(task_id, "run", events)


async def take(subscription: Subscription, count: int) -> list[int]:
    """Return the numbers of the next events."""
    return [number_of(await anext(subscription)) for _ in range(count)]


def number_of(streamed: StreamedEvent) -> int:
    assert isinstance(streamed.event, Thought)
    return int(streamed.event.text)


async def test_a_slow_subscriber_holds_nobody_up_and_misses_nothing(views: TaskViews) -> None:
    """One that reads nothing fills its queue only; the other gets all; then the first catches up."""
    task_id = unique("slow")
    async with (
        running(EventFanout(views, queue_limit=10)) as fanout,
        fanout.subscribe(task_id, START) as slow,
        fanout.subscribe(task_id, START) as quick,
    ):
        for number in range(300):
            await publish(views, task_id, number)
            assert await take(quick, 1) == [number]
            assert fanout.waiting_events <= 10
        assert await take(slow, 300) == list(range(300))


async def test_catching_up_while_events_go_on_misses_and_repeats_nothing(views: TaskViews) -> None:
    """A subscriber with room for three events reads a stream that never pauses, whole and in order."""
    task_id, count = unique("busy"), 1000
    async with (
        running(EventFanout(views, queue_limit=3)) as fanout,
        fanout.subscribe(task_id, START) as subscription,
    ):

        async def write() -> None:
            for number in range(0, count, 5):
                await publish(views, task_id, *range(number, number + 5))

        writing = asyncio.create_task(write())
        assert await take(subscription, count) == list(range(count))
        await writing


async def test_a_subscriber_from_a_newer_position_gets_nothing_twice(views: TaskViews) -> None:
    """Events before a subscriber's own position are skipped, though the reader still has to read them."""
    task_id = unique("newer")
    fanout = EventFanout(views)
    async with fanout.subscribe(task_id, START) as early:
        await publish(views, task_id, 1, 2, 3)
        position = (await views.read({task_id: START}, wait=0))[1].position
        async with fanout.subscribe(task_id, position) as late, running(fanout):
            assert await take(late, 1) == [3]
            assert await take(early, 3) == [1, 2, 3]


async def test_a_subscriber_from_an_older_position_misses_nothing(redis: Redis) -> None:
    """Neither events read before, nor those read while the stream seemed to have no more."""
    views, task_id = _LateViews(redis), unique("older")
    async with running(EventFanout(views)) as fanout, fanout.subscribe(task_id, START) as early:
        await publish(views, task_id, 1)
        assert await take(early, 1) == [1]

        async def meanwhile() -> None:
            await publish(views, task_id, 2)
            assert await take(early, 1) == [2]

        async with fanout.subscribe(task_id, START) as late:
            assert await take(late, 1) == [1]
            views.meanwhile = meanwhile
            assert await take(late, 1) == [2]


async def test_events_that_were_lost_end_the_subscription(redis: Redis) -> None:
    """Before the events that follow: they would mislead without a new snapshot."""
    views, task_id = TaskViews(redis), unique("gap")
    first, third = (
        StatusChanged(version=version, state=TaskState.WORKING, at=datetime.now(UTC)) for version in (1, 3)
    )
    async with running(EventFanout(views)) as fanout, fanout.subscribe(task_id, START) as subscription:
        await views.publish(task_id, "run", [first])
        assert (await anext(subscription)).event == first
        await views.publish(task_id, "run", [third])
        assert await _drained(subscription) == []
        assert subscription.is_lost


class _LateViews(TaskViews):
    """Runs a function after the next read that finds nothing."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        events = await super().read(positions, wait=wait, limit=limit)
        if not wait and not events and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return events


async def test_subscribing_again_while_the_reader_reads_leaves_no_gap(redis: Redis) -> None:
    """A task that loses its last subscriber and gets one from an older position starts over from there."""
    task_id = unique("again")
    held = _HeldViews(redis)
    await publish(held, task_id, 1, 2, 3, 4)
    events = await held.read({task_id: START}, wait=0)
    fanout = EventFanout(held)
    async with running(fanout), AsyncExitStack() as stack:
        async with fanout.subscribe(task_id, events[1].position):
            await held.reading.wait()
        again = await stack.enter_async_context(fanout.subscribe(task_id, START))
        held.released.set()
        assert await take(again, 4) == [number_of(event) for event in events]


async def test_who_leaves_with_an_event_is_read_for_no_more(redis: Redis) -> None:
    """The reader drops the subscriber first; otherwise its read has to be ended for the next one."""
    views, task_id = _AskedViews(redis), unique("leaves")
    async with running(EventFanout(views)) as fanout:
        async with fanout.subscribe(task_id, START) as subscription:
            publishing = asyncio.create_task(publish(views, task_id, 1))
            assert await take(subscription, 1) == [1]
        await publishing
        while not views.is_reading:  # noqa: ASYNC110 -- of its own event loop
            await asyncio.sleep(0)

    assert [*map(set, views.asked)][-2:] == [{task_id}, set[str]()]


class _AskedViews(TaskViews):
    """Records the streams that were read."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.asked: list[Mapping[str, str]] = []
        self.is_reading = False

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        self.asked.append(positions)
        self.is_reading = True
        try:
            return await super().read(positions, wait=wait, limit=limit)
        finally:
            self.is_reading = False


class _HeldViews(TaskViews):
    """Blocks the first blocking read after it has read."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.reading = asyncio.Event()
        self.released = asyncio.Event()

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        events = await super().read(positions, wait=wait, limit=limit)
        if wait and events:
            self.reading.set()
            await self.released.wait()
        return events


async def test_closing_ends_all_subscriptions(views: TaskViews) -> None:
    """Waiting ones, and later ones."""
    fanout = EventFanout(views)
    task_id = unique("closing")
    async with running(fanout), fanout.subscribe(task_id, START) as subscription:
        waiting = asyncio.ensure_future(_drained(subscription))
        fanout.close()
        assert await waiting == []
        async with fanout.subscribe(task_id, START) as late:
            assert await _drained(late) == []


async def _drained(subscription: Subscription) -> list[int]:
    return [number_of(event) async for event in subscription]


async def test_a_defect_of_the_store_does_not_end_the_reader(redis: Redis) -> None:
    """After an unexpected error the reader goes on, and its subscribers with it."""
    broken = _BrokenViews(redis)
    task_id = unique("broken")
    async with running(EventFanout(broken)) as fanout, fanout.subscribe(task_id, START) as subscription:
        await publish(broken, task_id, 1)
        assert await take(subscription, 1) == [1]
        assert broken.failures == []


class _BrokenViews(TaskViews):
    """Fails on the first reads: once as Redis does, once as a defect does."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.failures: list[Exception] = [ZeroDivisionError("a defect"), RedisConnectionError("gone")]

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        if self.failures:
            raise self.failures.pop()
        return await super().read(positions, wait=wait, limit=limit)


async def test_a_lost_stream_ends_the_subscription(tmp_path: Path) -> None:
    """After the loss of Redis each subscriber gets an error at once, and takes a new snapshot."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, task_id = TaskViews(redis), unique("lost")
        await views.restore(a_view(task_id=task_id, state=TaskState.WORKING))
        snapshot = await views.load(task_id)
        assert snapshot
        async with (
            running(EventFanout(views, idle_check=0.05)) as fanout,
            fanout.subscribe(task_id, snapshot.position) as subscription,
        ):
            await redis.flushall()
            assert await _drained(subscription) == []
