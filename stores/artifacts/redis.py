"""Artifacts in Redis, with a blob store for large parts."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import cast

from pydantic import Field
from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs, LinkTerms
from everloop.runtime.settings import Settings
from everloop.stores.artifacts.cleanup import ArtifactBlobs, remove_artifact
from everloop.stores.artifacts.interface import ARTIFACT_TTL, Announcement, Artifacts, Change, now
from everloop.stores.artifacts.reader import ArtifactReader
from everloop.stores.artifacts.record import INLINE_BYTES, SEGMENT_BYTES, ArtifactAddress, PartContent, Sizes
from everloop.stores.artifacts.rules import part_of
from everloop.stores.artifacts.writer import ArtifactServers, ArtifactWriter, Request
from everloop.stores.keys import context_artifacts_key
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact


class RedisArtifacts(Artifacts):
    """A record for each artifact; small parts stay in Redis, large ones move to `blobs`.

    A change puts the blobs that it needs, and then writes record, content and events in one transaction,
    which fails if somebody else has changed the record: of two writers at once the later one starts again
    from what the earlier one left. Whatever a process that dies leaves behind, `ArtifactHousekeeping`
    deletes. `ttl` counts from the last change (default 30 days); `inline_limit` is how many bytes of a part
    stay in Redis (default 100,000), `segment` how many a blob holds at most (default 5 MiB).
    """

    def __init__(  # noqa: PLR0913 -- what it is made of, each by its name
        self,
        redis: Redis,
        blobs: Blobs,
        views: RedisTaskViews,
        *,
        ttl: timedelta = ARTIFACT_TTL,
        inline_limit: int = INLINE_BYTES,
        segment: int = SEGMENT_BYTES,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._redis = redis
        self._blobs = ArtifactBlobs(redis, blobs)
        self._reader = ArtifactReader(redis, self._blobs, clock)
        sizes = Sizes(min(inline_limit, segment), segment)
        self._servers = ArtifactServers(redis, self._blobs, views, self._reader, ttl, sizes, clock)

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
    ) -> StoredArtifact:
        request = Request(context_id, artifact_id, change, operation_id, announcement)
        return await ArtifactWriter(self._servers, request).write()

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        return (await self._reader.record(ArtifactAddress(context_id, artifact_id))).artifact

    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        keys = cast("list[str]", await self._redis.zrange(context_artifacts_key(context_id), 0, -1))
        found = [record.artifact for record in await self._reader.records(keys)]
        of_task = [artifact for artifact in found if task_id in {None, artifact.task_id}]
        return sorted(of_task, key=lambda artifact: (artifact.created_at, artifact.artifact_id))

    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        address = ArtifactAddress(context_id, artifact_id)
        await remove_artifact(self._redis, self._blobs, address.record_key, lambda _: True)

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        address = ArtifactAddress(context_id, artifact_id)
        async for piece in self._reader.read(address, index, start, end):
            yield piece

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        address = ArtifactAddress(context_id, artifact_id)
        record = await self._reader.record(address)
        part_of(record.artifact, index)
        is_complete = record.artifact.status is ArtifactStatus.COMPLETE
        name = _whole_blob(record.contents[index]) if is_complete else None
        if name is None or self._blobs.links is None:
            return None
        return await self._blobs.links.url(address.blob_key(name), terms)


def _whole_blob(content: PartContent) -> str | None:
    """Return the name of the blob that holds all of a part."""
    if content.joined:
        return content.joined
    is_one = len(content.segments) == 1 and not content.tail
    return content.segments[0].name if is_one else None


# How a process keeps artifacts.

MAX_TTL_DAYS = 36_500


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
