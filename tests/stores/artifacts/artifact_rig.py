"""Artifact stores of each kind for tests, small enough that content moves to blobs soon."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from _pytest.mark import ParameterSet
from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs
from everloop.runtime.redis import cipher_of
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord, unseal_record
from everloop.stores.log.log_store import TaskViews
from tests.stores.blobs.blob_rig import BlobRig, open_rig

INLINE, SEGMENT = 100, 400
TTL = timedelta(days=30)
TASK = "task"
BLOB_STORES = {"redis+local": "local", "redis+redis": "redis", "redis+s3": "s3"}
ENCRYPTED = "encrypted"
"""Redis, with a client that encrypts, and blobs in a directory."""

EVERYWHERE = pytest.mark.parametrize(
    "artifact_rig", ["redis+local", "redis+redis", "redis+s3", ENCRYPTED], indirect=True
)
"""The kinds of stores of each such test, in the gate too; other tests use blobs in a directory there."""


def slow(*kinds: str) -> list[ParameterSet]:
    return [pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


BLOB_STORES_HERE = ["redis+local", *slow("redis+redis", "redis+s3")]
ARTIFACT_STORES = [*BLOB_STORES_HERE, *slow(ENCRYPTED)]
WITH_BLOBS = pytest.mark.parametrize("artifact_rig", BLOB_STORES_HERE, indirect=True)


@dataclass
class Clock:
    """A clock that a test advances."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.at


@dataclass(frozen=True)
class ArtifactRig:
    """An artifact store with its parts. `context_id` and `task_id` are the test's own."""

    artifacts: Artifacts
    views: TaskViews
    clock: Clock
    redis: Redis
    blob_rig: BlobRig
    context_id: str = field(default_factory=lambda: f"owner:{uuid4()}")
    task_id: str = field(default_factory=lambda: f"task-{uuid4()}")

    @property
    def blobs(self) -> Blobs:
        return self.blob_rig.blobs

    async def content(self, artifact_id: str, index: int = 0) -> bytes:
        return await read(self.artifacts, self.context_id, artifact_id, index)

    async def record(self, artifact_id: str) -> ArtifactRecord:
        address = ArtifactAddress(self.context_id, artifact_id)
        kept = str(await self.redis.get(address.record_key))
        return unseal_record(kept, address.record_key, cipher_of(self.redis))

    async def version(self) -> int:
        """Return how many changes were made to `a`."""
        return (await self.record("a")).artifact.version


def open_artifacts(kind: str, request: pytest.FixtureRequest) -> ArtifactRig:
    """Return a store of this kind, and start its servers."""
    clock = Clock()
    if kind == ENCRYPTED:
        return redis_artifacts(request.getfixturevalue(ENCRYPTED), open_rig("local", request), clock)
    redis = request.getfixturevalue("redis")
    return redis_artifacts(redis, open_rig(BLOB_STORES[kind], request), clock)


def redis_artifacts(
    redis: Redis, rig: BlobRig, clock: Clock | None = None, *, blobs: Blobs | None = None
) -> ArtifactRig:
    """Return a store in Redis; `blobs` replaces the rig's."""
    clock, views = clock or Clock(), TaskViews(redis)
    artifacts = Artifacts(
        redis, blobs or rig.blobs, ttl=TTL, inline_limit=INLINE, segment=SEGMENT, clock=clock
    )
    return ArtifactRig(artifacts, views, clock, redis, rig)


async def read(artifacts: Artifacts, context_id: str, artifact_id: str, index: int = 0) -> bytes:
    """Read all of a part."""
    return b"".join([piece async for piece in artifacts.read_part(context_id, artifact_id, index)])
