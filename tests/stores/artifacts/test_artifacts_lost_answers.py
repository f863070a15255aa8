"""A change whose answer is lost is made once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.interface import Append, Change
from tests.stores.artifacts.answer_eater import AnswerEater, answer_eater
from tests.stores.artifacts.artifact_benches import ArtifactBench, redis_artifacts
from tests.stores.artifacts.artifact_faults import (
    apply,
    begin,
    contents,
    each_change,
    expected_contents,
    housekeep,
    kept_blobs,
    local_bench,
    named_blobs,
)


@pytest.fixture
def bench(own_redis: Redis, request: pytest.FixtureRequest) -> ArtifactBench:
    """A store whose blobs are in a directory, with a Redis of its own."""
    return local_bench(own_redis, request)


@pytest_asyncio.fixture(loop_scope="session")
async def eater(bench: ArtifactBench, own_redis: Redis) -> AsyncGenerator[AnswerEater]:
    url = own_redis.connection_pool.connection_kwargs
    async with answer_eater(f"redis://{url['host']}:{url['port']}/0") as proxy:
        yield proxy


@asynccontextmanager
async def behind(eater: AnswerEater, bench: ArtifactBench) -> AsyncGenerator[ArtifactBench]:
    """Yield the same store as a process sees it whose Redis is behind the proxy."""
    assert bench.blob_bench
    async with connect_redis(eater.url) as redis:
        other = redis_artifacts(redis, bench.blob_bench, bench.clock)
        yield replace(other, context_id=bench.context_id, task_id=bench.task_id)


@pytest.mark.parametrize("before", [True, False])
@each_change
async def test_lost_answer_is_looked_up(
    bench: ArtifactBench, eater: AnswerEater, change: Change, before: object
) -> None:
    """If the connection breaks at the transaction, the change is made once, whether it was done or not."""
    await begin(bench)
    async with behind(eater, bench) as process:
        eater.word, eater.meals, eater.before = b"EXEC", 1, bool(before)
        artifact = await apply(process, change)
    assert eater.meals == 0
    assert artifact.version == 3
    assert await contents(bench) == await expected_contents(change)
    assert await bench.told() == ["0 → 1", "1 → 2", "2 → 3"]
    assert kept_blobs(bench) == await named_blobs(bench)


async def test_operation_is_safe_to_repeat(bench: ArtifactBench, eater: AnswerEater) -> None:
    """If Redis is lost after the transaction, the caller does not know; its next try changes nothing."""
    await begin(bench)
    async with behind(eater, bench) as process:
        eater.word, eater.meals = b"EXEC", 1
        eater.is_closing = True
        with pytest.raises(RedisConnectionError):
            await apply(process, Append(b"1" * 500), "o")
        eater.is_closing = False
        artifact = await apply(process, Append(b"1" * 500), "o")
    assert artifact.version == 3
    assert await contents(bench) == [b"0" * 150 + b"tail" + b"1" * 500]
    await housekeep(bench)
    assert kept_blobs(bench) == await named_blobs(bench)
