"""Makes one change of an artifact in Redis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, in_hashing_thread
from everloop.runtime.foreign_schemas import in_schema_thread
from everloop.runtime.redis import cipher_of
from everloop.stores.artifacts.changes import AddParts, Announcement, Append, Change, Create, Replace
from everloop.stores.artifacts.cleanup import PENDING_TIME, ArtifactBlobs
from everloop.stores.artifacts.reader import ArtifactReader
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    Layout,
    Sizes,
    Sources,
    lay_out,
    new_name,
    seal_record,
    seal_tail,
    unseal_record,
)
from everloop.stores.artifacts.rules import Changed, OperationContext, change_artifact
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.events import TaskEvent

_MAX_TRIES = 100
_MAX_TOKENS = 100
_TOKEN_LENGTH = 12
_LARGE = 64 * 1024
_BUSY = "others change this artifact all the time; try again"


@dataclass(frozen=True)
class Request:
    """A call of `Artifacts.apply`."""

    context_id: str
    artifact_id: str
    change: Change
    operation_id: str
    announcement: Announcement | None


@dataclass(frozen=True)
class ArtifactServers:
    """What artifacts are kept in. `ttl` counts from the last change."""

    redis: Redis
    blobs: ArtifactBlobs
    views: RedisTaskViews
    reader: ArtifactReader
    ttl: timedelta
    sizes: Sizes
    clock: Callable[[], datetime]


@dataclass(frozen=True)
class _Plan:
    """What makes the change, where the record is `found`. `named` are keys of blobs that are there for it."""

    found: str | None
    record: ArtifactRecord
    layout: Layout
    events: Sequence[TaskEvent]
    named: tuple[str, ...]
    at: datetime

    def is_stale(self, now: datetime) -> bool:
        """Whether its blobs wait for so long that they may soon be taken for abandoned."""
        return bool(self.named) and now > self.at + PENDING_TIME / 2


class ArtifactWriter:
    """Reads the record, plans, puts the blobs, and commits if the record is still the same; if not, again.

    No connection is held while blobs are put. redis-py raises the same error where another has changed the
    record as where the connection broke while it was watched, even if the transaction was done by then: the
    token in the record tells.
    """

    def __init__(self, servers: ArtifactServers, request: Request) -> None:
        self._servers = servers
        self._cipher = cipher_of(servers.redis)
        self._request = request
        self._address = ArtifactAddress(request.context_id, request.artifact_id)
        self._token = new_name()[:_TOKEN_LENGTH]

    async def write(self) -> StoredArtifact:
        """Make the change and return the artifact as it is then."""
        plan = await self._plan()
        for tries in range(_MAX_TRIES):
            if isinstance(plan, StoredArtifact):
                return plan
            try:
                is_done = await self._commit(plan)
            except WatchError:
                if tries == _MAX_TRIES - 1:
                    raise
                continue
            if is_done:
                await self._servers.blobs.forget(plan.layout.released)
                return plan.record.artifact
            # Its transaction cannot come through any more: the record that it watches has changed.
            await self._servers.blobs.forget(plan.named)
            plan = await self._plan()
        raise WatchError(_BUSY)

    async def _plan(self) -> _Plan | StoredArtifact:
        """Return a plan with its blobs put, or the artifact where there is nothing to change."""
        for _ in range(_MAX_TRIES):
            found = await self._found()
            try:
                return await self._plan_from(found)
            except (BlobMissingError, BlobCorruptError):
                if await self._found() == found:
                    raise
                # Another has moved what was to be read.
        raise WatchError(_BUSY)

    async def _plan_from(self, found: str | None) -> _Plan | StoredArtifact:
        servers, at = self._servers, self._servers.clock()
        kept = unseal_record(found, self._address.record_key, self._cipher) if found else None
        before = kept.artifact if kept and kept.expires_at > at else None
        changed = await self._changed(before, at)
        if isinstance(changed, StoredArtifact):
            return changed
        announcement = self._request.announcement
        events = announcement.events_of(before, changed.artifact) if announcement else ()
        layout = await self._lay_out(kept, changed)
        named = await servers.blobs.put(layout.puts, layout.joins)
        record = ArtifactRecord(
            artifact=changed.artifact,
            contents=layout.contents_with(named),
            expires_at=at + servers.ttl,
            tokens=(*(kept.tokens if kept else ()), self._token)[-_MAX_TOKENS:],
        )
        return _Plan(found, record, layout, events, tuple(named), at)

    async def _changed(self, before: StoredArtifact | None, at: datetime) -> Changed | StoredArtifact:
        request = self._request
        operation = OperationContext(request.context_id, request.artifact_id, at, request.operation_id)
        change = partial(change_artifact, before, request.change, operation)
        if _holds_rows(request.change):  # they are checked by schemas that a model wrote
            changed = await in_schema_thread(change)
        else:  # values are parsed
            changed = await in_hashing_thread(change) if _size(request.change) > _LARGE else change()
        if changed is None and before is not None:
            return before
        return cast("Changed", changed)

    async def _lay_out(self, kept: ArtifactRecord | None, changed: Changed) -> Layout:
        servers = self._servers
        blobs = servers.blobs
        sources = Sources(partial(servers.reader.tail, self._address), blobs.get, blobs.new_name)
        joins = blobs.links is not None
        return await lay_out(kept, changed, servers.sizes, sources, joins=joins)

    async def _found(self) -> str | None:
        return cast("str | None", await self._servers.redis.get(self._address.record_key))

    async def _commit(self, plan: _Plan) -> bool:
        """Whether the record is as planned now; if not, another has changed it, or the blobs got too old."""
        key, record = self._address.record_key, plan.record
        async with self._servers.redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            found = cast("str | None", await pipeline.get(key))
            if found != plan.found:
                return self._has_landed(found)
            if plan.is_stale(self._servers.clock()):
                return False
            pipeline.multi()
            pipeline.set(key, seal_record(record, self._cipher))
            pipeline.zadd(self._address.index_key, {key: record.artifact.created_at.timestamp()})
            pipeline.zadd(EXPIRING_ARTIFACTS_KEY, {key: record.expires_at.timestamp()})
            self._queue_content(pipeline, plan)
            await self._queue_events(pipeline, plan)
            await pipeline.execute()
            return True

    def _has_landed(self, found: str | None) -> bool:
        """Whether an earlier transaction of ours was done although its answer was lost."""
        if not found:
            return False
        return self._token in unseal_record(found, self._address.record_key, self._cipher).tokens

    def _queue_content(self, pipeline: Pipeline, plan: _Plan) -> None:
        for write in plan.layout.tails:
            key = self._address.tail_key(write.index)
            if write.is_new and not write.content:
                pipeline.delete(key)
            elif write.content:
                write_to = pipeline.set if write.is_new else pipeline.append
                write_to(key, seal_tail(write.content, key, self._cipher))
        self._servers.blobs.queue_names(pipeline, plan.named, plan.layout.released)

    async def _queue_events(self, pipeline: Pipeline, plan: _Plan) -> None:
        told = self._request.announcement
        if told:
            await self._servers.views.queue_publish(pipeline, told.task_id, told.run_id, plan.events)


def _holds_rows(change: Change) -> bool:
    match change:
        case Append():
            return bool(change.rows) or any(part.row_schema for part in change.parts)
        case Create() | AddParts():
            return any(part.row_schema is not None for part in change.parts)
        case Replace():
            return change.part.row_schema is not None
        case _:
            return False


def _size(change: Change) -> int:
    match change:
        case Append():
            return len(change.content)
        case Create() | AddParts():
            return sum(len(part.content) for part in change.parts)
        case Replace():
            return len(change.part.content)
        case _:
            return 0
