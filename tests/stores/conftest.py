"""Stores under test: the gate runs them on Redis without encryption, `make test-all` also with it."""

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.s3_blobs import S3Blobs
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts
from tests.stores.artifacts.artifact_rig import ARTIFACT_STORES, ArtifactRig, open_artifacts, redis_artifacts
from tests.stores.blobs.blob_rig import open_rig
from tests.support.encryption import CIPHER
from tests.support.servers.buckets import running_moto
from tests.support.servers.processes import running_valkey
from tests.support.servers.redis_cluster import RedisCluster, running_redis_cluster
from tests.support.stores import SingleRecords

Store = TypeVar("Store")

IMPLEMENTATIONS = [
    "redis",
    pytest.param("encrypted", marks=pytest.mark.slow),
]


@pytest.fixture(scope="session")
def redis_url(redis_url: str) -> str:
    """Return a database of its own.

    Gateways of other tests would fail tasks that Temporal has no record of.
    """
    return redis_url.replace("/0", "/1")


@pytest_asyncio.fixture(loop_scope="session")
async def encrypted(redis_url: str) -> AsyncGenerator[Redis]:
    """Return a client of the same Redis that encrypts."""
    async with connect_redis(redis_url, CIPHER) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def own_redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Redis]:
    """Start a server of the test's own, which it may misconfigure or empty."""
    async with running_valkey(tmp_path_factory.mktemp("valkey")) as (_, url), connect_redis(url) as redis:
        yield redis


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RedisCluster]:
    async with running_redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def of_each_kind(real: Callable[[Redis], Store]) -> Any:  # noqa: ANN401 -- pytest's
    """Return the fixture of a store, with encryption and without."""

    @pytest.fixture(params=IMPLEMENTATIONS)
    def store(request: pytest.FixtureRequest) -> Store:
        return real(request.getfixturevalue(str(request.param)))

    return store


task_views = of_each_kind(TaskViews)
transcripts = of_each_kind(Transcripts)
tool_records = of_each_kind(SingleRecords)
secrets = of_each_kind(Secrets)
configs = of_each_kind(PushConfigs)


@pytest.fixture(params=ARTIFACT_STORES)
def artifact_rig(request: pytest.FixtureRequest) -> Generator[ArtifactRig]:
    """Return an artifact store of each kind, with its parts."""
    rig = open_artifacts(str(request.param), request)
    yield rig
    if rig.blob_rig and isinstance(rig.blobs, S3Blobs | LocalBlobs):
        rig.blobs.close()


@pytest.fixture
def rig(own_redis: Redis, request: pytest.FixtureRequest) -> ArtifactRig:
    """Return an artifact store with blobs in a directory and a Redis of its own."""
    return redis_artifacts(own_redis, open_rig("local", request))


@pytest.fixture
def artifacts(artifact_rig: ArtifactRig) -> Artifacts:
    """Return an artifact store of each kind."""
    return artifact_rig.artifacts


@pytest.fixture(scope="session")
def s3_endpoint() -> Generator[str]:
    with running_moto() as endpoint:
        yield endpoint
