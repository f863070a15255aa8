"""A change whose answer is lost is made once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.changes import Append, Change
from tests.stores.artifacts.answer_eater import AnswerEater, answer_eater
from tests.stores.artifacts.artifact_failures import (
    apply,
    begin,
    contents,
    each_change,
    expected_contents,
    housekeep,
    kept_blobs,
    named_blobs,
)
from tests.stores.artifacts.artifact_rig import ArtifactRig, redis_artifacts

pytestmark = pytest.mark.one_server  # nodes of a cluster name their own addresses, not that of a proxy


@pytest_asyncio.fixture(loop_scope="session")
async def eater(rig: ArtifactRig, own_redis: Redis) -> AsyncGenerator[AnswerEater]:
    url = own_redis.connection_pool.connection_kwargs
    async with answer_eater(f"redis://{url['host']}:{url['port']}/0") as proxy:
        yield proxy


@asynccontextmanager
async def behind(eater: AnswerEater, rig: ArtifactRig) -> AsyncGenerator[ArtifactRig]:
    """Yield the same store as a process sees it whose Redis is behind the proxy."""
    assert rig.blob_rig
    async with connect_redis(eater.url) as redis:
        other = redis_artifacts(redis, rig.blob_rig, rig.clock)
        yield replace(other, context_id=rig.context_id, task_id=rig.task_id)


@pytest.mark.parametrize("before", [True, False])
@each_change
async def test_lost_answer_is_looked_up(
    rig: ArtifactRig, eater: AnswerEater, change: Change, before: object
) -> None:
    """If the connection breaks at the transaction, the change is made once, whether it was done or not."""
    await begin(rig)
    async with behind(eater, rig) as process:
        eater.word, eater.meals, eater.before = b"EXEC", 1, bool(before)
        artifact = await apply(process, change)
    assert eater.meals == 0
    assert artifact.version == 3
    assert await contents(rig) == await expected_contents(change)
    assert await rig.published() == ["0 → 1", "1 → 2", "2 → 3"]
    assert kept_blobs(rig) == await named_blobs(rig)


async def test_operation_is_safe_to_repeat(rig: ArtifactRig, eater: AnswerEater) -> None:
    """If Redis is lost after the transaction, the caller does not know; its next try changes nothing."""
    await begin(rig)
    async with behind(eater, rig) as process:
        eater.word, eater.meals = b"EXEC", 1
        eater.is_closing = True
        with pytest.raises(RedisConnectionError):
            await apply(process, Append(b"1" * 500), "o")
        eater.is_closing = False
        artifact = await apply(process, Append(b"1" * 500), "o")
    assert artifact.version == 3
    assert await contents(rig) == [b"0" * 150 + b"tail" + b"1" * 500]
    await housekeep(rig)
    assert kept_blobs(rig) == await named_blobs(rig)
