"""Quotas of each owner: rates of requests, and open tasks."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from everloop.stores.log.log_store import TaskViews
from everloop.stores.quotas import Quotas, Rate
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import new_id, status, submitted
from tests.support.clocks import FastClock

SLOW = Rate(per_minute=1, burst=5)
"""A rate that allows no further request during a test."""


@dataclass(frozen=True)
class Store:
    """Quotas, and the views of their tasks."""

    views: TaskViews
    quotas: Quotas


@pytest.fixture
def store(redis: Redis) -> Store:
    return Store(TaskViews(redis), Quotas(redis))


async def reserve(store: Store, owner: str, *task_ids: str) -> list[bool]:
    """Reserve these tasks in order for an owner with a limit of two."""
    return [await store.quotas.reserve_task(owner, task_id, 2) for task_id in task_ids]


async def create(store: Store, owner: str, task_id: str = "") -> TaskView:
    view = submitted(task_id, owner=owner)
    await store.views.create(view)
    return view


async def test_a_burst_of_requests_is_taken_exactly(store: Store) -> None:
    """Of concurrent requests exactly a burst passes; the others get the time of the next free one."""
    owner, quotas = new_id(), store.quotas

    waits = await asyncio.gather(*(quotas.take_request(owner, SLOW) for _ in range(50)))

    assert sorted(waits)[:5] == [0.0] * 5
    assert all(50 < wait <= 60 for wait in sorted(waits)[5:])


@pytest.mark.one_server  # the clock is that of one
async def test_requests_do_not_wait_for_a_clock_that_was_put_back(redis: Redis) -> None:
    """After a clock was set back, the next interval has room again, not the next hour."""
    clock, owner = FastClock(redis, timedelta(hours=1)), new_id()
    quotas = Quotas(clock)
    assert [await quotas.take_request(owner, SLOW) for _ in range(5)] == [0] * 5
    clock.ahead = timedelta()

    assert 0 < await quotas.take_request(owner, SLOW) <= 60


async def test_requests_come_back_evenly(store: Store) -> None:
    """After the burst each interval allows one request; refused ones use none."""
    owner, quotas, rate = new_id(), store.quotas, Rate(per_minute=60, burst=2)
    for each in (owner, owner, new_id()):
        assert await quotas.take_request(each, rate) == 0

    refused = 0
    while wait := await quotas.take_request(owner, rate):
        assert 0 < wait <= rate.interval
        refused += 1

    assert refused
    assert await quotas.take_request(owner, rate) > 0


async def test_as_many_tasks_as_the_limit_are_reserved(store: Store) -> None:
    """Concurrent calls reserve as many tasks as the limit."""
    owner, quotas = new_id(), store.quotas

    granted = await asyncio.gather(*(quotas.reserve_task(owner, new_id(), 5) for _ in range(50)))

    assert sum(granted) == 5
    assert await reserve(store, new_id(), new_id()) == [True]


async def test_reserving_a_task_again_is_free(store: Store) -> None:
    """A repeated reservation is free: before the task exists, while it is open, and after its end."""
    owner, one, two = new_id(), new_id(), new_id()

    assert await reserve(store, owner, one, two, one, two, new_id()) == [True] * 4 + [False]
    await create(store, owner, one)
    assert await reserve(store, owner, one, new_id()) == [True, False]
    await store.views.publish(one, "run", [status(1, TaskState.COMPLETED)])
    assert await reserve(store, owner, one, new_id(), one, new_id()) == [True, True, True, False]


async def test_tasks_of_sub_agents_do_not_count(store: Store) -> None:
    """Tasks of sub-agents do not count against the owner's limit."""
    owner = new_id()
    view = await create(store, owner)
    for call in ("a", "b"):
        await create(store, owner, child_task_id(view.task_id, call))

    assert await reserve(store, owner, new_id(), new_id()) == [True, False]


async def test_a_reservation_that_comes_to_nothing_passes(redis: Redis) -> None:
    """The reservation of a gateway that dies before the start expires soon."""
    owner, died, quotas = new_id(), Quotas(redis, reservation=timedelta(milliseconds=100)), Quotas(redis)
    assert [await each.reserve_task(owner, new_id(), 2) for each in (died, quotas)] == [True, True]

    while not await quotas.reserve_task(owner, new_id(), 2):  # noqa: ASYNC110 -- a fact of a server, no event
        await asyncio.sleep(0.01)


async def test_a_task_that_will_not_exist_is_released(store: Store) -> None:
    """The place of a task that will not exist, or is deleted, is free at once; existing tasks keep theirs."""
    owner, task_id = new_id(), new_id()
    view = await create(store, owner)
    assert await reserve(store, owner, task_id, new_id()) == [True, False]

    await store.quotas.release_task(owner, task_id)
    await store.quotas.release_task(owner, view.task_id)

    assert await reserve(store, owner, new_id(), new_id()) == [True, False]

    owner, task_id = new_id(), new_id()
    assert await reserve(store, owner, task_id) == [True]
    await create(store, owner, task_id)
    assert await store.views.lists.forget(owner, task_id)
    assert await reserve(store, owner, new_id(), new_id()) == [True, True]
