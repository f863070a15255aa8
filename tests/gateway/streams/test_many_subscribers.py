"""Many who follow one task on several gateways, and some who do not read."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest_asyncio
from temporalio.client import Client

from everloop.gateway.tasks.fanout import PAGE, EventFanout
from everloop.runtime.redis import connect_redis
from everloop.stores.views.interface import TaskViews
from everloop.stores.views.redis import RedisTaskViews
from tests.gateway.harness import RunningGateway, running_gateway
from tests.gateway.streams.followed_tasks import working_task
from tests.gateway.streams.raw_subscriber import RawEvent, RawSubscriber, subscriber

QUEUE_LIMIT = 20
"""How many events may wait for a subscriber here: a hundred times fewer than usual."""

LARGE = "x" * 40_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replicas(
    client: Client, views: TaskViews, redis_url: str
) -> AsyncGenerator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways that share nothing but servers, and start no tasks."""
    async with connect_redis(redis_url) as redis:
        other_views = RedisTaskViews(redis)
        fanouts = [EventFanout(own, queue_limit=QUEUE_LIMIT, idle_check=600) for own in (views, other_views)]
        async with (
            running_gateway(client, views, queue="none", fanout=fanouts[0]) as one,
            running_gateway(client, other_views, queue="none", fanout=fanouts[1]) as two,
        ):
            yield one, two


async def test_stalled_readers_slow_nobody_and_hold_little(
    views: TaskViews, replicas: tuple[RunningGateway, RunningGateway]
) -> None:
    """While five read nothing of 6 MB, others get all of it; for the five no more waits than queues hold."""
    task, fanout = await working_task(views), replicas[0].fanout
    most_held = 5 * max(QUEUE_LIMIT, PAGE)
    async with AsyncExitStack() as stack:
        stalled = [await stack.enter_async_context(subscriber(replicas[0].url, task.id)) for _ in range(5)]
        for one in stalled:
            await one.next()
        quick = await stack.enter_async_context(subscriber(replicas[0].url, task.id))
        await quick.next()
        most = 0
        for _ in range(150):
            await task.write(LARGE)
            assert (await _some(quick)).text == LARGE
            most = max(most, fanout.waiting_events)
        await task.complete()
        (end,) = await quick.rest()
        assert 0 < most <= most_held
        assert fanout.waiting_events <= most_held
        everything = [await one.rest() for one in stalled]
    assert all(events[-1] == end for events in everything)
    assert {sum(len(event.text) for event in events) for events in everything} == {150 * len(LARGE)}


async def _some(one: RawSubscriber) -> RawEvent:
    event = await one.next()
    assert event, "the stream ended"
    return event
