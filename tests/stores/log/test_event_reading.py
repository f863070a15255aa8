"""Reading of streams: positions, waiting, waking, and detection of gaps."""

import asyncio
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.keys import log_key
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START, is_position, position_order
from everloop.workflows.contract.events import TaskEvent, Warned
from everloop.workflows.contract.names import child_task_id
from tests.stores.examples import entries_of, new_id, status, submitted

LONG_WAIT = 60.0


async def commands(redis: Redis) -> int:
    """Return the number of commands that Redis has executed, without this one."""
    stats = cast("dict[str, dict[str, int]]", await redis.info("commandstats"))
    ours = ("cmdstat_info", "cmdstat_script|load", "cmdstat_hello", "cmdstat_client", "cmdstat_ping")
    return sum(of["calls"] for name, of in stats.items() if not name.startswith(ours))


def warnings(count: int) -> list[TaskEvent]:
    return [Warned(text=str(n)) for n in range(count)]


async def test_reading_starts_after_each_tasks_position(task_views: TaskViews) -> None:
    """One read returns the events after each task's position, in order, with the new positions."""
    first, second = new_id(), new_id()
    for task_id in (first, second):
        await task_views.publish(task_id, "run", warnings(3))
    middle = (await entries_of(task_views, first))[1].position

    found = await task_views.read({first: middle, second: START, new_id(): START}, wait=0)

    assert [e.event for e in found if e.task_id == first] == warnings(3)[2:]
    assert [e.event for e in found if e.task_id == second] == warnings(3)
    positions = [position_order(e.position) for e in found if e.task_id == second]
    assert positions == sorted(set(positions))


async def test_wake_before_the_read_ends_the_next_one_only(task_views: TaskViews) -> None:
    """A wake between two reads is not lost, and counts once."""
    task_id = new_id()
    await task_views.wake()
    await task_views.wake()
    assert await task_views.read({task_id: START}, wait=LONG_WAIT) == []

    reading = asyncio.create_task(task_views.read({task_id: START}, wait=LONG_WAIT))
    await asyncio.sleep(0)
    await task_views.publish(task_id, "run", [status(1)])
    assert [entry.event for entry in await reading] == [status(1)]


@pytest.mark.one_server  # it counts the commands of one
async def test_who_reads_no_stream_asks_nothing_of_redis(own_redis: Redis) -> None:
    """A gateway without subscribers sends nothing to Redis; a wake ends its wait, before or during it."""
    views, task_id = TaskViews(own_redis), new_id()
    before = await commands(own_redis)
    await views.wake()
    assert await views.read({}, wait=LONG_WAIT) == []
    reading = asyncio.create_task(views.read({}, wait=LONG_WAIT))
    await asyncio.sleep(0)
    await views.wake()
    assert await reading == []
    assert await views.read({}, wait=0.001) == []

    assert await commands(own_redis) == before
    await views.publish(task_id, "run", [status(1)])
    found = await views.read({task_id: START}, wait=LONG_WAIT)
    assert [entry.event for entry in found] == [status(1)]


async def test_a_stream_holds_the_positions_of_its_events(task_views: TaskViews) -> None:
    """Reading can resume from the start and from each event, and from no other position."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "run", warnings(3))
    entries = await entries_of(task_views, view.task_id)

    assert await task_views.holds(view.task_id, START)
    assert [await task_views.holds(view.task_id, entry.position) for entry in entries] == [True] * 4
    milliseconds, sequence = position_order(entries[-1].position)
    for position in (
        f"{milliseconds}-{sequence + 1}",
        f"{milliseconds + 1}-0",
        f"0{milliseconds}-{sequence}",
        f"{milliseconds}",
        "x",
    ):
        assert not await task_views.holds(view.task_id, position)
    assert not await task_views.holds(new_id(), START)


async def test_a_stream_that_has_expired_misses_nothing_after_its_last_event(redis: Redis) -> None:
    """An expired stream has no gap after its last event until the task continues.

    Earlier positions have one.
    """
    views, task_id = TaskViews(redis), new_id()
    await views.create(submitted(task_id))
    await views.publish(task_id, "run", [status(1)])
    first, last = [entry.position for entry in await entries_of(views, task_id)]
    await redis.delete(log_key(task_id))

    assert [await views.holds(task_id, position) for position in (first, last)] == [False, True]

    await views.publish(task_id, "run", warnings(1))

    assert not await views.holds(task_id, last)


async def test_a_trimmed_stream_does_not_hold_its_start(redis: Redis) -> None:
    """A trimmed stream can be resumed neither from the start nor from its first event."""
    views, task_id = TaskViews(redis, max_events=10), new_id()
    await views.publish(task_id, "run", [status(1)])
    first = (await entries_of(views, task_id))[0].position
    assert await views.holds(task_id, START)

    await views.publish(task_id, "run", warnings(500))

    assert not await views.holds(task_id, START)
    assert not await views.holds(task_id, first)
    assert await views.holds(task_id, (await entries_of(views, task_id))[-1].position)


async def test_a_stream_keeps_no_more_bytes_than_a_task_may_have(redis: Redis) -> None:
    """A stream has at most a task's number of bytes.

    Its oldest events are trimmed, from any publisher; a reader before them is told of the loss.
    """
    views, task_id = TaskViews(redis, RetentionSettings(max_task_bytes=1_000_000)), new_id()
    child_id = child_task_id(task_id, "call")
    await views.create(submitted(task_id))
    for number in range(60):
        text = f"{number} " + "x" * 50_000
        await views.publish(task_id if number % 2 else child_id, "run", [Warned(text=text)])
        for each in (task_id, child_id):
            assert (await redis.memory_usage(log_key(each), samples=0) or 0) < 1_100_000

    kept = await entries_of(views, task_id)
    assert 5 < len(kept) < 60
    assert isinstance(kept[-1].event, Warned)
    assert kept[-1].event.text.startswith("59 ")
    assert await views.holds(task_id, kept[0].position)
    assert not await views.holds(task_id, START)
    await views.publish(task_id, "run", [Warned(text="y" * 2_000_000)])
    next_one = Warned(text="z" * 100_000)
    await views.publish(task_id, "run", [next_one])
    assert [entry.event for entry in await entries_of(views, task_id)] == [next_one]


def test_a_position_is_two_unsigned_numbers() -> None:
    """A position of another form than two unsigned numbers is refused."""
    for text in ("0-0", "1795227794730-4", f"{2**64 - 1}-{2**64 - 1}"):
        assert is_position(text)
    for text in (f"{2**64}-0", "1", "1-", "-1", "1-2-3", "+1-0", "\u0661-0", "1" * 5_000 + "-0"):
        assert not is_position(text)
