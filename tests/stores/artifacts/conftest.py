"""A store whose blobs are in a directory."""

import pytest
from redis.asyncio import Redis

from tests.stores.artifacts.artifact_rig import ArtifactRig, redis_artifacts
from tests.stores.blobs.blob_rig import open_rig


@pytest.fixture
def rig(own_redis: Redis, request: pytest.FixtureRequest) -> ArtifactRig:
    """A store whose blobs are in a directory, with a Redis of its own."""
    return redis_artifacts(own_redis, open_rig("local", request))
