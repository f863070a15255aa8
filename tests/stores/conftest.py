"""Every store test runs against the in-memory store and against Redis."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from stores.memory_secrets import MemorySecrets
from stores.memory_task_views import MemoryTaskViews
from stores.memory_tool_records import MemoryToolRecords
from stores.memory_transcripts import MemoryTranscripts
from stores.redis_connection import connect_redis
from stores.redis_secrets import RedisSecrets
from stores.redis_task_views import RedisTaskViews
from stores.redis_tool_records import RedisToolRecords
from stores.redis_transcripts import RedisTranscripts
from stores.secrets import Secrets
from stores.task_views import TaskViews
from stores.tool_records import ToolRecords
from stores.transcripts import Transcripts
from tests.support.processes import running_valkey

IMPLEMENTATIONS = ("memory", "redis")


@pytest_asyncio.fixture(loop_scope="session")
async def redis(redis_url: str) -> AsyncGenerator[Redis]:
    client = connect_redis(redis_url)
    yield client
    await client.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def own_redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Redis]:
    """A server of the test's own, which it may misconfigure or empty."""
    async with running_valkey(tmp_path_factory.mktemp("valkey")) as (_, url), connect_redis(url) as redis:
        yield redis


@pytest.fixture(params=IMPLEMENTATIONS)
def task_views(request: pytest.FixtureRequest) -> TaskViews:
    if request.param == "memory":
        return MemoryTaskViews()
    return RedisTaskViews(request.getfixturevalue("redis"))


@pytest.fixture(params=IMPLEMENTATIONS)
def transcripts(request: pytest.FixtureRequest) -> Transcripts:
    if request.param == "memory":
        return MemoryTranscripts()
    return RedisTranscripts(request.getfixturevalue("redis"))


@pytest.fixture(params=IMPLEMENTATIONS)
def tool_records(request: pytest.FixtureRequest) -> ToolRecords:
    if request.param == "memory":
        return MemoryToolRecords()
    return RedisToolRecords(request.getfixturevalue("redis"))


@pytest.fixture(params=IMPLEMENTATIONS)
def secrets(request: pytest.FixtureRequest) -> Secrets:
    if request.param == "memory":
        return MemorySecrets()
    return RedisSecrets(request.getfixturevalue("redis"))
