"""A reader that follows streams on all nodes of a cluster during failovers and moves."""

import asyncio
from collections.abc import AsyncGenerator

import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.runtime.redis import connect_redis
from everloop.stores.keys import log_key
from everloop.stores.log.event_reader import RedisEventReader
from everloop.stores.log.log_types import START, StreamedEvent
from everloop.workflows.contract.events import Warned
from tests.stores.examples import new_id
from tests.support.servers.redis_cluster import RedisCluster

LONG_WAIT = 60.0
TASKS = 30


@pytest_asyncio.fixture(loop_scope="session")
async def redis(cluster: RedisCluster) -> AsyncGenerator[Redis]:
    async with connect_redis(cluster.url) as redis:
        yield redis


class Follower:
    """A reader like a gateway's that collects the texts of each task."""

    def __init__(self, redis: Redis, task_ids: list[str]) -> None:
        self.reader = RedisEventReader(redis)
        self.positions = dict.fromkeys(task_ids, START)
        self.texts = {task_id: list[str]() for task_id in task_ids}
        self.failures = 0

    async def until(self, count: int) -> None:
        """Read until each task has this many texts."""
        while any(len(texts) < count for texts in self.texts.values()):
            try:
                found = await self.reader.read(self.positions, wait=LONG_WAIT, limit=100)
            except (RedisError, OSError):
                self.failures += 1
                await asyncio.sleep(0.1)
                continue
            for entry in found:
                assert isinstance(entry.event, Warned)
                self.positions[entry.task_id] = entry.position
                self.texts[entry.task_id].append(entry.event.text)


async def write(redis: Redis, task_id: str, text: str) -> None:
    """Write an event, and retry as publishers do."""
    while True:
        try:
            await redis.xadd(log_key(task_id), {"event": Warned(text=text).model_dump_json()})
        except (RedisError, OSError):
            await asyncio.sleep(0.1)
        else:
            return


async def test_events_of_all_nodes_arrive(redis: Redis) -> None:
    """Events of all nodes arrive, old ones and those during a wait, each once and in order."""
    follower = Follower(redis, [new_id() for _ in range(TASKS)])
    expected = [str(number) for number in range(6)]
    for number in range(3):
        for task_id in follower.texts:
            await write(redis, task_id, str(number))
    await follower.until(3)

    following = asyncio.create_task(follower.until(6))
    for number in range(3, 6):
        for task_id in follower.texts:
            await write(redis, task_id, str(number))
    await following

    assert list(follower.texts.values()) == [expected] * TASKS
    assert follower.failures == 0


async def test_a_page_is_not_taken_for_all(redis: Redis) -> None:
    """Events that exceed one read come with the next, without new ones."""
    task_id = new_id()
    for number in range(5):
        await write(redis, task_id, str(number))
    reader = RedisEventReader(redis)

    first = await reader.read({task_id: START}, wait=LONG_WAIT, limit=3)
    rest = await reader.read({task_id: first[-1].position}, wait=LONG_WAIT, limit=3)

    assert [len(first), len(rest)] == [3, 2]


async def test_a_reader_that_waits_can_be_woken(redis: Redis) -> None:
    """A reader that waits can be woken for another task; a wake before a read ends the next one only."""
    reader, task_id = RedisEventReader(redis), new_id()
    await reader.wake()
    assert await reader.read({task_id: START}, wait=LONG_WAIT, limit=10) == []
    reading = asyncio.create_task(reader.read({}, wait=LONG_WAIT, limit=10))
    await asyncio.sleep(0)
    await reader.wake()
    assert await reading == []


async def test_streams_whose_slot_moves_are_followed(cluster: RedisCluster, redis: Redis) -> None:
    """Streams of a moving slot are followed: old and new entries come once, from either node."""
    follower = Follower(redis, [new_id()])
    (task_id,) = follower.texts
    await write(redis, task_id, "before")
    await follower.until(1)

    following = asyncio.create_task(follower.until(2))
    await cluster.move_slot(log_key(task_id))
    await write(redis, task_id, "after")
    await following

    assert follower.texts[task_id] == ["before", "after"]


async def test_what_a_new_primary_lacks_is_told(cluster: RedisCluster, redis: Redis) -> None:
    """If a new primary lacks the last entry that was read, its next one follows a loss, later ones do not."""
    reader, task_id = RedisEventReader(redis), new_id()
    key = log_key(task_id)
    await write(redis, task_id, "lost")
    (lost,) = await reader.read({task_id: START}, wait=LONG_WAIT, limit=10)
    killed = await cluster.primary_of(key)
    await cluster.kill_primary(killed)
    await write(redis, task_id, "after")
    await redis.xdel(key, lost.position)
    await write(redis, task_id, "later")

    found = list[StreamedEvent]()
    while not found:
        try:
            found = await reader.read({task_id: lost.position}, wait=LONG_WAIT, limit=10)
        except (RedisError, OSError):
            await asyncio.sleep(0.1)
    await cluster.start_again(killed)

    assert [each.follows_loss for each in found] == [True, False]


async def test_nothing_is_lost_when_a_primary_is_killed(cluster: RedisCluster, redis: Redis) -> None:
    """Reading continues at the replica of a killed primary, and meanwhile on other nodes, without a loss."""
    follower = Follower(redis, [new_id() for _ in range(TASKS)])
    first = next(iter(follower.texts))
    for task_id in follower.texts:
        await write(redis, task_id, "before")
    following = asyncio.create_task(follower.until(2))
    killed = await cluster.primary_of(log_key(first))

    await cluster.kill_primary(killed)
    for task_id in follower.texts:
        await write(redis, task_id, "after")
    await following

    assert list(follower.texts.values()) == [["before", "after"]] * TASKS
    assert follower.failures > 0
    await cluster.start_again(killed)
