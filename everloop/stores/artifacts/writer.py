"""Changes artifacts in Redis and stores their content there or in blobs."""

import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, in_hashing_thread
from everloop.runtime.redis import cipher_of
from everloop.runtime.schema_validation import in_schema_thread
from everloop.stores.artifacts.artifact_blobs import PENDING_TIME, ArtifactBlobs
from everloop.stores.artifacts.changes import AddParts, Append, Change, Create, NewPart, Replace
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    PartContent,
    Segment,
    seal_record,
    seal_tail,
    unseal_record,
)
from everloop.stores.artifacts.rules import Changed, OperationContext, Write, change_artifact
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact

SEGMENT_BYTES = 5 * 1024 * 1024
"""Minimum size of the pieces that S3 joins, except the last one."""

INLINE_BYTES = 100_000
"""Default size in bytes up to which a part stays in Redis instead of blobs."""

ReadTail = Callable[[ArtifactAddress, int], Awaitable[bytes | None]]
"""Returns the tail of a part by its index; None if it has no tail."""


@dataclass(frozen=True)
class Sizes:
    """Size limits in bytes. `inline`: size up to which a part stays in Redis, at most `segment`."""

    inline: int = INLINE_BYTES
    segment: int = SEGMENT_BYTES

    def must_flush(self, content: PartContent, added: int, *, is_closing: bool) -> bool:
        """Return True if the tail moves into segments when so many bytes are appended."""
        tail, flushed = content.tail + added, content.flushed
        if not flushed:
            return tail > self.inline
        filled = self.open_bytes(content) + tail >= self.segment
        return filled or tail >= max(self.inline, flushed) or (is_closing and tail > 0)

    def open_bytes(self, content: PartContent) -> int:
        """Return the size of the last segment if that is not full, 0 otherwise."""
        last = content.segments[-1].size if content.segments else 0
        return last if last < self.segment else 0

    def cut(self, loose: bytes, *, is_closing: bool) -> tuple[list[bytes], bytes]:
        """Return the end of a part as segments and a tail."""
        full = len(loose) // self.segment * self.segment
        segments = [loose[at : at + self.segment] for at in range(0, full, self.segment)]
        rest = loose[full:]
        if rest and (is_closing or not segments):
            return [*segments, rest], b""
        return segments, rest


@dataclass(eq=False)
class Layout:
    """The writes that store the content of a changed artifact, and its new `contents`, after `lay_out`.

    `puts`: new blobs by key. `joins`: blobs to join from others, by key. `tails`: writes to the tails of
    parts, appended or in their place.
    """

    before: ArtifactRecord | None
    changed: Changed
    sizes: Sizes
    read_tail: ReadTail
    blobs: ArtifactBlobs

    def __post_init__(self) -> None:
        self.puts: dict[str, bytes] = {}
        self.joins: dict[str, list[str]] = {}
        self.tails: list[Write] = []
        self.contents = list(self.before.contents) if self.before and not self.changed.is_new else []
        self._before = self.before.contents if self.before else ()
        self._address = ArtifactAddress(self.changed.artifact.context_id, self.changed.artifact.artifact_id)
        # The content of a failed artifact is not moved: it must end even if its blobs are lost or their store
        # is down.
        self._is_closing = self.changed.artifact.status is ArtifactStatus.COMPLETE

    async def lay_out(self) -> None:
        """Lay out the written content; if the artifact is complete, also the existing tails.

        Raises:
            BlobError: content that has to be stored again cannot be read.
        """
        for write in self.changed.writes:
            if write.is_new:
                self.contents[write.index : write.index + 1] = [PartContent(generation=uuid.uuid4().hex)]
            await self._extend(write)
        if self._is_closing:
            for index in range(len(self.contents)):
                await self._extend(Write(index, b""))
            if self.blobs.links is not None:
                self._join()
        gone = range(len(self.contents), len(self._before))
        self.tails += [Write(index, b"", is_new=True) for index in gone]

    def contents_with(self, blobs: Sequence[str]) -> tuple[PartContent, ...]:
        """Return the contents without the joined blobs whose keys are not among these."""
        there = {key.rpartition("/")[2] for key in blobs}
        left_out = {key.rpartition("/")[2] for key in self.joins} - there
        return tuple(
            content.model_copy(update={"joined": ""}) if content.joined in left_out else content
            for content in self.contents
        )

    def released(self) -> list[str]:
        """Return the keys of blobs that are no longer named."""
        named = {name for content in self.contents for name in content.blob_names}
        left = (name for content in self._before for name in content.blob_names)
        return [self._address.blob_key(name) for name in left if name not in named]

    def _join(self) -> None:
        """Join each part of several segments into one more blob."""
        for index, content in enumerate(self.contents):
            if len(content.segments) > 1:
                name = self.blobs.new_name()
                sources = [self._address.blob_key(segment.name) for segment in content.segments]
                self.joins[self._address.blob_key(name)] = sources
                self.contents[index] = content.model_copy(update={"joined": name})

    async def _extend(self, write: Write) -> None:
        content, added = self.contents[write.index], write.content
        if self.sizes.must_flush(content, len(added), is_closing=self._is_closing):
            await self._flush(write.index, added)
        elif added or write.is_new:
            crc = zlib.crc32(added, content.tail_crc)
            update = {"tail": content.tail + len(added), "tail_crc": crc}
            self.contents[write.index] = content.model_copy(update=update)
            self.tails.append(write)

    async def _flush(self, index: int, added: bytes) -> None:
        content = self.contents[index]
        segments, loose = content.segments, list[bytes]()
        if self.sizes.open_bytes(content):
            segments = content.segments[:-1]
            loose.append(await self.blobs.get(self._address.blob_key(content.segments[-1].name)))
        if content.tail:
            tail_key = self._address.tail_key(index)
            loose.append(content.check_tail(await self.read_tail(self._address, index), tail_key))
        pieces, tail = self.sizes.cut(b"".join([*loose, added]), is_closing=self._is_closing)
        self.contents[index] = PartContent(
            generation=content.generation,
            segments=(*segments, *self._put(pieces)),
            tail=len(tail),
            tail_crc=zlib.crc32(tail),
        )
        self.tails.append(Write(index, tail, is_new=True))

    def _put(self, pieces: list[bytes]) -> Iterator[Segment]:
        for piece in pieces:
            name = self.blobs.new_name()
            self.puts[self._address.blob_key(name)] = piece
            yield Segment(name=name, size=len(piece))


# The changes themselves.

_MAX_TRIES = 100
_MAX_TOKENS = 100
_TOKEN_LENGTH = 12
_LARGE = 64 * 1024
_BUSY = "others change this artifact all the time; try again"


@dataclass(frozen=True)
class Request:
    """A call of `Artifacts.apply`. `token` identifies its change in the record."""

    context_id: str
    address: ArtifactAddress
    change: Change
    operation_id: str
    follows: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:_TOKEN_LENGTH])


@dataclass(frozen=True)
class _WritePlan:
    """The writes of a change of the record `found`. `named` are the keys of the blobs put for it."""

    found: str | None
    record: ArtifactRecord
    layout: Layout
    named: tuple[str, ...]
    at: datetime

    def is_stale(self, now: datetime) -> bool:
        """Return True if its blobs have been pending for so long that they may soon count as orphaned."""
        return bool(self.named) and now > self.at + PENDING_TIME / 2


@dataclass(eq=False)
class ArtifactWriter:
    """Reads the record, plans, puts the blobs, and commits if the record is unchanged; if not, starts again.

    No connection is held while blobs are put. redis-py raises the same error if another process has changed
    the record and if the connection broke while the record was watched, even after the transaction: the token
    in the record shows which. `ttl` counts from the last change.
    """

    redis: Redis
    blobs: ArtifactBlobs
    read_tail: ReadTail
    _: KW_ONLY
    ttl: timedelta
    sizes: Sizes
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._cipher = cipher_of(self.redis)

    async def write(self, request: Request) -> StoredArtifact:
        """Make the change and return the changed artifact."""
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
                await self.blobs.forget(plan.layout.released(), request.address.pending_key)
                return plan.record.artifact
            # Its transaction can no longer succeed: the record that it watches has changed.
            await self.blobs.forget(plan.named, request.address.pending_key)
            plan = await self._plan(request)
        raise WatchError(_BUSY)

    async def _plan(self, request: Request) -> _WritePlan | StoredArtifact:
        """Return a plan whose blobs are put, or the artifact if nothing changes."""
        for _ in range(_MAX_TRIES):
            found = await self._found(request)
            try:
                return await self._plan_from(request, found)
            except (BlobMissingError, BlobCorruptError):
                if await self._found(request) == found:
                    raise
                # Another process has moved the content.
        raise WatchError(_BUSY)

    async def _plan_from(self, request: Request, found: str | None) -> _WritePlan | StoredArtifact:
        at = self.clock()
        stored = unseal_record(found, request.address.record_key, self._cipher) if found else None
        before = stored.artifact if stored and stored.expires_at > at else None
        changed = await _changed(request, before, at)
        if isinstance(changed, StoredArtifact):
            return changed
        layout = Layout(stored, changed, self.sizes, self.read_tail, self.blobs)
        await layout.lay_out()
        named = await self.blobs.put(layout.puts, layout.joins, request.address.pending_key)
        record = ArtifactRecord(
            artifact=changed.artifact,
            contents=layout.contents_with(named),
            expires_at=at + self.ttl,
            tokens=(*(stored.tokens if stored else ()), request.token)[-_MAX_TOKENS:],
        )
        return _WritePlan(found, record, layout, tuple(named), at)

    async def _found(self, request: Request) -> str | None:
        return cast("str | None", await self.redis.get(request.address.record_key))

    async def _commit(self, request: Request, plan: _WritePlan) -> bool:
        """Return True if the record is as planned now, False if it was changed or the blobs are too old."""
        key, record = request.address.record_key, plan.record
        async with self.redis.pipeline(transaction=True) as pipeline:
            await pipeline.watch(key)
            found = cast("str | None", await pipeline.get(key))
            if found != plan.found:
                # An earlier transaction of this plan may have been done although its answer was lost.
                return bool(found) and request.token in unseal_record(found, key, self._cipher).tokens
            if plan.is_stale(self.clock()):
                return False
            await self._note_for_housekeeping(request.address, plan)
            pipeline.multi()
            pipeline.set(key, seal_record(record, self._cipher))
            pipeline.zadd(request.address.index_key, {key: record.artifact.created_at.timestamp()})
            self._queue_content(pipeline, request.address, plan)
            await pipeline.execute()
            return True

    async def _note_for_housekeeping(self, address: ArtifactAddress, plan: _WritePlan) -> None:
        """List the artifact and its blobs for the housekeeping before they exist, in other hash slots.

        For an artifact that is listed already, the housekeeping reads the new time to live from the record.
        """
        if plan.found is None:
            expires_at = plan.record.expires_at.timestamp()
            await self.redis.zadd(EXPIRING_ARTIFACTS_KEY, {address.record_key: expires_at})
        if plan.layout.released():
            await self.blobs.list_pending(address.pending_key)

    def _queue_content(self, pipeline: Pipeline, address: ArtifactAddress, plan: _WritePlan) -> None:
        for write in plan.layout.tails:
            key = address.tail_key(write.index)
            if write.is_new and not write.content:
                pipeline.delete(key)
            elif write.content:
                write_to = pipeline.set if write.is_new else pipeline.append
                write_to(key, seal_tail(write.content, key, self._cipher))
        self.blobs.queue_names(pipeline, address.pending_key, plan.named, plan.layout.released())


async def _changed(request: Request, before: StoredArtifact | None, at: datetime) -> Changed | StoredArtifact:
    """Return the result of a change, or the artifact if nothing changes."""
    ids = request.context_id, request.address.artifact_id
    operation = OperationContext(*ids, at, request.operation_id, request.follows)
    change = partial(change_artifact, before, request.change, operation)
    if _holds_rows(request.change):  # rows are checked by schemas that a model wrote
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
