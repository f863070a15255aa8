"""How a process keeps artifacts."""

from datetime import timedelta

from pydantic import Field
from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs
from everloop.runtime.settings import Settings
from everloop.stores.artifacts.interface import ARTIFACT_TTL, Artifacts
from everloop.stores.artifacts.layout import INLINE_BYTES, SEGMENT_BYTES
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.retention import MAX_TTL_DAYS
from everloop.stores.views.redis import RedisTaskViews


class ArtifactSettings(Settings):
    """How artifacts are kept: the same for all workers and gateways.

    EVERLOOP_ARTIFACT_INLINE_BYTES: up to how many bytes a part stays in Redis, default 100,000, at most
    5,242,880; larger ones move to the blob store. EVERLOOP_ARTIFACT_TTL_DAYS: how long an artifact is kept
    after its last change, default 30, at most 36,500. An empty variable counts as not set.
    """

    artifact_inline_bytes: int = Field(default=INLINE_BYTES, ge=0, le=SEGMENT_BYTES)
    artifact_ttl_days: int = Field(default=ARTIFACT_TTL.days, ge=1, le=MAX_TTL_DAYS)

    @property
    def ttl(self) -> timedelta:
        return timedelta(days=self.artifact_ttl_days)


def make_artifacts(
    settings: ArtifactSettings, redis: Redis, blobs: Blobs, views: RedisTaskViews
) -> Artifacts:
    """Return the store of these settings; what it is made of stays open."""
    limit = settings.artifact_inline_bytes
    return RedisArtifacts(redis, blobs, views, ttl=settings.ttl, inline_limit=limit)
