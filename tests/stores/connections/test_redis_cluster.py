"""A cluster of six servers: callers need neither the place of a key nor its moves."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import ClusterCrossSlotError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from everloop.runtime.redis import RedisUnfitError, check_redis, connect_redis, primaries, scan_page
from tests.support.servers.redis_cluster import RedisCluster

WAYS = ("alone", "transaction", "watch", "pipeline", "script")
KEYS = [f"everloop:test:{{{number}}}" for number in range(50)]


@pytest_asyncio.fixture(loop_scope="session")
async def redis(cluster: RedisCluster) -> AsyncGenerator[Redis]:
    async with connect_redis(cluster.url) as redis:
        yield redis
        await redis.flushdb()


async def test_a_cluster_that_is_whole_fits(cluster: RedisCluster, redis: Redis) -> None:
    """Each primary of a cluster is checked: one that evicts keys is refused by its address."""
    assert await check_redis(redis) == []
    last = (await primaries(redis))[-1]
    await last.config_set("maxmemory-policy", "allkeys-lru")
    port = last.connection_pool.connection_kwargs["port"]

    with pytest.raises(RedisUnfitError, match="allkeys-lru"):
        await check_redis(redis)

    await last.config_set("maxmemory-policy", "noeviction")
    assert port in {node.port for node in cluster.nodes}


async def test_commands_find_the_nodes_of_their_keys(redis: Redis) -> None:
    """Commands reach the nodes of their keys: alone, in a pipeline over all nodes, and in new scripts."""
    for key in KEYS:
        await redis.set(key, key)
    script = redis.register_script("return redis.call('GET', KEYS[1]) .. ARGV[1]")

    async with redis.pipeline(transaction=False) as pipeline:
        for key in KEYS:
            pipeline.get(key)
            await script(keys=[key], args=["!"], client=pipeline)
        replies = await pipeline.execute()

    assert replies == [reply for key in KEYS for reply in (key, f"{key}!")]
    assert [await script(keys=[key], args=["?"]) for key in KEYS] == [f"{key}?" for key in KEYS]


async def test_a_transaction_is_of_one_slot(redis: Redis) -> None:
    """A transaction, also under a watch, changes keys of one slot; those of several slots are refused."""
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.set("{a}x", "1")
        pipeline.set("{a}y", "2")
        assert await pipeline.execute() == [True, True]
        await pipeline.watch("{a}x")
        found = str(await pipeline.get("{a}x"))
        pipeline.multi()
        pipeline.set("{a}x", found + "1")
        await pipeline.execute()
        pipeline.set("{a}x", "lost")
        pipeline.set("{b}x", "lost")
        with pytest.raises(RedisError, match="keys of one slot; these are of 2"):
            await pipeline.execute()

    assert await redis.mget("{a}x", "{a}y") == ["11", "2"]
    with pytest.raises(ClusterCrossSlotError):
        await redis.mget("{a}x", "{b}x")


async def test_scans_see_the_keys_of_all_nodes(redis: Redis) -> None:
    """A scan reads the keys of all nodes in pages; its cursor is the place to continue."""
    for key in KEYS:
        await redis.set(key, "1")
    found, cursor = await _page(redis, "")
    while cursor:
        page, cursor = await _page(redis, cursor)
        found += page

    assert sorted(set(found)) == sorted(KEYS)


async def test_a_slot_may_move_while_it_is_in_use(cluster: RedisCluster, redis: Redis) -> None:
    """Existing clients follow a moved slot, with transactions and pipelines."""
    await redis.set("{moves}x", "1")
    await cluster.move_slot("{moves}x")

    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.incr("{moves}x")
        pipeline.incr("{moves}x")
        assert await pipeline.execute() == [2, 3]
    await cluster.move_slot("{moves}x")
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.incr("{moves}x")
        pipeline.set("{other}x", "1")
        assert await pipeline.execute() == [4, True]
    await cluster.move_slots_at_once(["{moves}x"])
    assert await redis.incr("{moves}x") == 5


async def test_a_killed_primary_is_replaced(cluster: RedisCluster, redis: Redis) -> None:
    """A killed primary's replica has its data; a slot without a server is a connection error."""
    await redis.set("{a}x", "1")
    killed = await cluster.primary_of("{a}x")

    await cluster.kill_primary(killed)
    try:
        found = await redis.get("{a}x")
    except RedisError:  # it was in use when the server died
        found = await redis.get("{a}x")

    await cluster.start_again(killed)
    assert found == "1"
    assert await check_redis(redis) == []


@pytest.mark.parametrize("how", WAYS)
async def test_what_a_replaced_primary_answers_does_not_count(
    cluster: RedisCluster, redis: Redis, how: str
) -> None:
    """Writes to a suspended primary that was replaced are lost, and not reported as done."""
    await redis.set("{a}x", "1")
    await cluster.until_synchronised()
    frozen = await cluster.primary_of("{a}x")
    os.kill(frozen.process.pid, signal.SIGSTOP)
    try:
        writing = asyncio.create_task(_write(redis, "{a}x", how))
        await cluster.until_replaced(frozen)
    finally:
        os.kill(frozen.process.pid, signal.SIGCONT)

    try:
        await writing
    except (RedisConnectionError, RedisTimeoutError):
        await _write(redis, "{a}x", how)
    assert await redis.get("{a}x") == "2"
    await cluster.until_synchronised()


@pytest.mark.parametrize("how", WAYS)
async def test_a_primary_that_may_not_write_is_no_connection(redis: Redis, how: str) -> None:
    """A primary that refuses by `min-replicas-to-write` is a connection error: callers retry."""
    await redis.set("{a}x", "1")
    await redis.config_set("min-replicas-to-write", 2)
    try:
        with pytest.raises(RedisConnectionError, match=r"does not serve a slot now: .*NOREPLICAS"):
            await _write(redis, "{a}x", how)
    finally:
        await redis.config_set("min-replicas-to-write", 0)

    assert await redis.get("{a}x") == "1"


async def _write(redis: Redis, key: str, how: str) -> None:
    if how == "alone":
        await redis.set(key, "2")
        return
    async with redis.pipeline(transaction=how in {"transaction", "watch"}) as pipeline:
        if how == "watch":
            await pipeline.watch(key)
            pipeline.multi()
        script = pipeline.register_script("return redis.call('SET', KEYS[1], '2')")
        await script(keys=[key]) if how == "script" else pipeline.set(key, "2")
        pipeline.get(key)
        await pipeline.execute()


async def _page(redis: Redis, cursor: str) -> tuple[list[str], str]:
    cursor, keys = await scan_page(redis, cursor, "everloop:test:*", 10)
    return keys, cursor
