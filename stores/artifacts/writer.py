"""Makes changes of artifacts in Redis."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, in_hashing_thread
from everloop.runtime.foreign_schemas import in_schema_thread
from everloop.runtime.redis import cipher_of
from everloop.stores.artifacts.blobs import PENDING_TIME, ArtifactBlobs
from everloop.stores.artifacts.changes import AddParts, Announcement, Append, Change, Create, NewPart, Replace
from everloop.stores.artifacts.layout import Layout, ReadTail, Sizes
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    seal_record,
    seal_tail,
    unseal_record,
)
from everloop.stores.artifacts.rules import Changed, OperationContext, change_artifact
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from everloop.workflows.contract.events import TaskEvent

_MAX_TRIES = 100
_MAX_TOKENS = 100
_TOKEN_LENGTH = 12
_LARGE = 64 * 1024
_BUSY = "others change this artifact all the time; try again"


@dataclass(frozen=True)
class Request:
    """A call of `Artifacts.apply`. `token` is how it knows its own change again."""

    context_id: str
    address: ArtifactAddress
    change: Change
    operation_id: str
    announcement: Announcement | None
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:_TOKEN_LENGTH])


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
        """Whether its blobs wait for so long that they may soon be taken for orphaned."""
        return bool(self.named) and now > self.at + PENDING_TIME / 2


class ArtifactWriter:
    """Reads the record, plans, puts the blobs, and commits if the record is still the same; if not, again.

    No connection is held while blobs are put. redis-py raises the same error where another has changed the
    record as where the connection broke while it was watched, even if the transaction was done by then: the
    token in the record tells. `ttl` counts from the last change.
    """

    def __init__(  # noqa: PLR0913 -- what artifacts are kept in, and how
        self,
        redis: Redis,
        blobs: ArtifactBlobs,
        views: TaskViews,
        read_tail: ReadTail,
        *,
        ttl: timedelta,
        sizes: Sizes,
        clock: Callable[[], datetime],
    ) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._blobs = blobs
        self._views = views
        self._read_tail = read_tail
        self._ttl = ttl
        self._sizes = sizes
        self._clock = clock

    async def write(self, request: Request) -> StoredArtifact:
        """Make the change and return the artifact as it is then."""
        plan = await self._plan(request)
        for tries in range(_MAX_TRIES):
            if isinstance(plan, StoredArtifact):
                return plan
            try:
                is_done = await self._commit(request, plan)
            except WatchError:
                if tries == _MAX_TRIES - 1:
                    raise
                continue
            if is_done:
                await self._announce(request, plan.events)
                await self._blobs.forget(plan.layout.released(), request.address.pending_key)
                return plan.record.artifact
            # Its transaction cannot come through any more: the record that it watches has changed.
            await self._blobs.forget(plan.named, request.address.pending_key)
            plan = await self._plan(request)
        raise WatchError(_BUSY)

    async def _plan(self, request: Request) -> _Plan | StoredArtifact:
        """Return a plan with its blobs put, or the artifact where there is nothing to change."""
        for _ in range(_MAX_TRIES):
            found = await self._found(request)
            try:
                return await self._plan_from(request, found)
            except (BlobMissingError, BlobCorruptError):
                if await self._found(request) == found:
                    raise
                # Another has moved what was to be read.
        raise WatchError(_BUSY)

    async def _plan_from(self, request: Request, found: str | None) -> _Plan | StoredArtifact:
        at = self._clock()
        kept = unseal_record(found, request.address.record_key, self._cipher) if found else None
        before = kept.artifact if kept and kept.expires_at > at else None
        changed = await _changed(request, before, at)
        if isinstance(changed, StoredArtifact):
            return changed
        announcement = request.announcement
        events = announcement.events_of(before, changed.artifact) if announcement else ()
        layout = Layout(kept, changed, self._sizes, self._read_tail, self._blobs)
        await layout.lay_out()
        named = await self._blobs.put(layout.puts, layout.joins, request.address.pending_key)
        record = ArtifactRecord(
            artifact=changed.artifact,
            contents=layout.contents_with(named),
            expires_at=at + self._ttl,
            tokens=(*(kept.tokens if kept else ()), request.token)[-_MAX_TOKENS:],
        )
        return _Plan(found, record, layout, events, tuple(named), at)

    async def _found(self, request: Request) -> str | None:
        return cast("str | None", await self._redis.get(request.address.record_key))

    async def _commit(self, request: Request, plan: _Plan) -> bool:
        """Whether the record is as planned now; if not, another has changed it, or the blobs got too old."""
        key, record = request.address.record_key, plan.record
        async with self._redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            found = cast("str | None", await pipeline.get(key))
            if found != plan.found:
                # An earlier transaction of ours may have been done although its answer was lost.
                return bool(found) and request.token in unseal_record(found, key, self._cipher).tokens
            if plan.is_stale(self._clock()):
                return False
            await self._tell_housekeeping(request.address, plan)
            pipeline.multi()
            pipeline.set(key, seal_record(record, self._cipher))
            pipeline.zadd(request.address.index_key, {key: record.artifact.created_at.timestamp()})
            self._queue_content(pipeline, request.address, plan)
            await pipeline.execute()
            return True

    async def _tell_housekeeping(self, address: ArtifactAddress, plan: _Plan) -> None:
        """List what housekeeping has to look at, in hash slots of its own, before there is anything.

        Of an artifact that is listed already it finds out by itself how long it lives now.
        """
        if plan.found is None:
            expires_at = plan.record.expires_at.timestamp()
            await self._redis.zadd(EXPIRING_ARTIFACTS_KEY, {address.record_key: expires_at})
        if plan.layout.released():
            await self._blobs.list_pending(address.pending_key)

    async def _announce(self, request: Request, events: Sequence[TaskEvent]) -> None:
        """Publish a change that is made, the second step; who repeats the operation does it in our place."""
        if (new := request.announcement) and events:
            await self._views.publish(new.task_id, new.run_id, events)

    def _queue_content(self, pipeline: Pipeline, address: ArtifactAddress, plan: _Plan) -> None:
        for write in plan.layout.tails:
            key = address.tail_key(write.index)
            if write.is_new and not write.content:
                pipeline.delete(key)
            elif write.content:
                write_to = pipeline.set if write.is_new else pipeline.append
                write_to(key, seal_tail(write.content, key, self._cipher))
        self._blobs.queue_names(pipeline, address.pending_key, plan.named, plan.layout.released())


async def _changed(request: Request, before: StoredArtifact | None, at: datetime) -> Changed | StoredArtifact:
    """Return what the change makes of an artifact, or the artifact where it changes nothing."""
    operation = OperationContext(request.context_id, request.address.artifact_id, at, request.operation_id)
    change = partial(change_artifact, before, request.change, operation)
    if _holds_rows(request.change):  # they are checked by schemas that a model wrote
        changed = await in_schema_thread(change)
    else:  # values are parsed
        changed = await in_hashing_thread(change) if _size(request.change) > _LARGE else change()
    if changed is None and before is not None:
        return before
    return cast("Changed", changed)


def _new_parts(change: Change) -> tuple[NewPart, ...]:
    match change:
        case Create() | Append() | AddParts():
            return change.parts
        case Replace():
            return (change.part,)
        case _:
            return ()


def _holds_rows(change: Change) -> bool:
    has_rows = isinstance(change, Append) and change.rows > 0
    return has_rows or any(part.row_schema is not None for part in _new_parts(change))


def _size(change: Change) -> int:
    appended = len(change.content) if isinstance(change, Append) else 0
    return appended + sum(len(part.content) for part in _new_parts(change))
