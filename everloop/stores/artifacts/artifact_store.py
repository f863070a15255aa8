"""Artifacts, the outputs of tasks, by context: in Redis, with a blob store for large parts.

Changes are in `everloop.stores.artifacts.changes`, errors in `everloop.stores.artifacts.artifact_errors`.
Errors of the blob store (`everloop.runtime.blobs`) are passed through.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import cast

from pydantic import Field
from redis.asyncio import Redis
from redis.client import NEVER_DECODE

from everloop.runtime.blobs import BlobMissingError, Blobs, LinkTerms
from everloop.runtime.environment import Settings
from everloop.runtime.redis import cipher_of
from everloop.stores.artifacts.artifact_blobs import ArtifactBlobs
from everloop.stores.artifacts.artifact_errors import (
    ArtifactExistsError,
    ArtifactMissingError,
    ArtifactReplacedError,
)
from everloop.stores.artifacts.changes import Change, Create, NewPart
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    PartContent,
    now,
    unseal_record,
    unseal_tail,
)
from everloop.stores.artifacts.removal import remove_artifact
from everloop.stores.artifacts.rules import part_of
from everloop.stores.artifacts.writer import INLINE_BYTES, SEGMENT_BYTES, ArtifactWriter, Request, Sizes
from everloop.stores.keys import context_artifacts_key
from everloop.stores.lifetimes import ARTIFACT_TTL, RetentionSettings
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.names import RESULT_PREFIX

_RECORDS_PER_COMMAND = 100

FRESH = timedelta(days=1)
"""Age up to which a file that was sent before counts as new. An older one is stored again: artifacts live for
a time after their last change, and the task that gets the file now should have all of that time."""


class Artifacts:
    """Artifacts by context and id. Artifacts of other contexts are not visible.

    `context_id` is the key of a context, `names.context_key`. There is a record for each artifact. Small
    parts stay in Redis, large ones move to `blobs`.

    A change puts the blobs that it needs, and then writes record and content in one transaction. It fails if
    another process has changed the record, and starts again from the new record. `PendingBlobs` deletes the
    leftovers of processes that died. `ttl` counts from the last change (default 30 days), by `clock`;
    `inline_limit` is the size in bytes up to which a part stays in Redis (default 100,000), `segment` the
    maximum size of a blob (default 5 MiB).
    """

    def __init__(  # noqa: PLR0913 -- its parts, each by name
        self,
        redis: Redis,
        blobs: Blobs,
        *,
        ttl: timedelta = ARTIFACT_TTL,
        inline_limit: int = INLINE_BYTES,
        segment: int = SEGMENT_BYTES,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._blobs = ArtifactBlobs(redis, blobs)
        self._clock = clock
        sizes = Sizes(min(inline_limit, segment), segment)
        self._writer = ArtifactWriter(redis, self._blobs, self._tail, ttl=ttl, sizes=sizes, clock=clock)

    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        follows: str = "",
    ) -> StoredArtifact:
        """Change an artifact in one atomic step, and return the changed artifact.

        An operation whose `operation_id` is in the artifact's log changes nothing. `follows`: required prefix
        of the id of the last operation.

        Raises:
            ArtifactError: The change is refused.
            BlobError, RedisError: A store does not answer or has lost content. It is unknown whether the
                artifact has changed; with the same `operation_id` it is safe to try again.
        """
        address = ArtifactAddress(context_id, artifact_id)
        return await self._writer.write(Request(context_id, address, change, operation_id, follows))

    async def keep_input(self, context_id: str, artifact_id: str, part: NewPart, task_id: str) -> None:
        """Store a file that was sent for a task, unless the same one was stored within `FRESH`.

        Raises:
            BlobError, RedisError: A store does not answer; it is safe to try again.
        """
        try:
            stored = await self.get_artifact(context_id, artifact_id)
        except ArtifactMissingError:
            with suppress(ArtifactExistsError):  # the same file was sent twice at the same time
                await self.apply(context_id, artifact_id, _input(part, task_id, override=False))
            return
        is_ours = stored.is_input and stored.status is ArtifactStatus.COMPLETE
        if not (is_ours and datetime.now(UTC) - stored.updated_at < FRESH):
            await self.put_input(context_id, artifact_id, part, task_id)

    async def put_input(self, context_id: str, artifact_id: str, part: NewPart, task_id: str) -> None:
        """Store a file that was sent, replacing one of the same id, with its whole time to live.

        Raises:
            BlobError, RedisError: A store does not answer; it is safe to try again.
        """
        await self.apply(context_id, artifact_id, _input(part, task_id, override=True))

    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        """Return an artifact without its content.

        Raises:
            ArtifactMissingError: It does not exist.
        """
        return (await self._record(ArtifactAddress(context_id, artifact_id))).artifact

    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        """Return the artifacts of a context, or of one task in it, oldest first, without results of tools."""
        keys = cast("list[str]", await self._redis.zrange(context_artifacts_key(context_id), 0, -1))
        found = [record.artifact for record in await self._records(keys)]
        return listed(found, task_id)

    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        """Remove an artifact with all of its content. A missing one is not an error."""
        address = ArtifactAddress(context_id, artifact_id)
        await remove_artifact(self._redis, self._blobs, address.record_key)

    async def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the content of a part from byte `start` to `end` (exclusive; None: its present end).

        Pieces have at most a few MiB. Each is checked before it is yielded: blobs against their sha256,
        inline content against its CRC-32. While the content only grows, blobs may be joined and tails may
        move into blobs: a read that finds one missing loads the record again, and continues.

        Raises:
            ArtifactMissingError: The artifact does not exist.
            PartIndexError: It has no such part.
            ArtifactReplacedError: It was replaced after a piece of it was yielded.
            BlobMissingError, BlobCorruptError: The content is lost.
        """
        address = ArtifactAddress(context_id, artifact_id)
        record, position = await self._record(address), start
        last = _last(record, index, end)
        while position < last:
            content = record.contents[index]
            piece = await self._piece(address, index, content, position)
            if piece is None:
                record = await self._look_again(address, index, content, position)
                if record.contents[index].generation != content.generation:
                    if position > start:
                        raise ArtifactReplacedError(artifact_id, index)
                    last = _last(record, index, end)
                continue
            yield piece[: last - position]
            position += len(piece)

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        """Return a URL with which clients fetch a part from the blob store itself, or None.

        Only a part that is complete, and too large to be stored inline, has one.

        Raises:
            ArtifactMissingError: The artifact does not exist.
            PartIndexError: It has no such part.
        """
        address = ArtifactAddress(context_id, artifact_id)
        record = await self._record(address)
        part_of(record.artifact, index)
        is_complete = record.artifact.status is ArtifactStatus.COMPLETE
        name = _single_blob(record.contents[index]) if is_complete else None
        if name is None or self._blobs.links is None:
            return None
        return await self._blobs.links.url(address.blob_key(name), terms)

    async def _record(self, address: ArtifactAddress) -> ArtifactRecord:
        found = await self._records([address.record_key])
        if not found:
            raise ArtifactMissingError(address.artifact_id)
        return found[0]

    async def _records(self, record_keys: Sequence[str]) -> list[ArtifactRecord]:
        """Return the records that exist."""
        found: list[ArtifactRecord] = []
        for first in range(0, len(record_keys), _RECORDS_PER_COMMAND):
            keys = record_keys[first : first + _RECORDS_PER_COMMAND]
            texts = cast("list[str | None]", await self._redis.mget(keys))
            records = (self._parse(key, text) for key, text in zip(keys, texts, strict=True))
            found += [record for record in records if record]
        return found

    async def _tail(self, address: ArtifactAddress, index: int) -> bytes | None:
        _, tail = await self._record_and_tail(address, index)
        return tail

    async def _piece(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> bytes | None:
        """Return content from a position on, or None if it has moved."""
        place = content.segment_at(position)
        if place is None:
            return await self._piece_of_tail(address, index, content, position)
        segment, first = place
        try:
            return (await self._blobs.get(address.blob_key(segment.name)))[position - first :]
        except BlobMissingError:
            return None

    async def _piece_of_tail(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> bytes | None:
        record, tail = await self._record_and_tail(address, index)
        if record is None or index >= len(record.contents):
            return None
        now = record.contents[index]
        if (now.generation, now.segments) != (content.generation, content.segments):
            return None
        return now.check_tail(tail, address.tail_key(index))[position - now.flushed :]

    async def _look_again(
        self, address: ArtifactAddress, index: int, content: PartContent, position: int
    ) -> ArtifactRecord:
        """Return the current record.

        Raises:
            BlobMissingError: The record is unchanged in this place: the blob is lost.
        """
        record = await self._record(address)
        part_of(record.artifact, index)
        now, place = record.contents[index], content.segment_at(position)
        if place and now.generation == content.generation and now.segment_at(position) == place:
            raise BlobMissingError(address.blob_key(place[0].name))
        return record

    async def _record_and_tail(
        self, address: ArtifactAddress, index: int
    ) -> tuple[ArtifactRecord | None, bytes | None]:
        """Return both, read atomically."""
        # The client is set up to decode texts, but a tail is binary.
        execute = cast("Callable[..., Awaitable[list[bytes | None]]]", self._redis.execute_command)
        keys = address.record_key, address.tail_key(index)
        text, tail = await execute("MGET", *keys, **{NEVER_DECODE: True})
        record = self._parse(address.record_key, text.decode() if text else None)
        return record, None if tail is None else unseal_tail(tail, address.tail_key(index), self._cipher)

    def _parse(self, key: str, text: str | None) -> ArtifactRecord | None:
        record = unseal_record(text, key, self._cipher) if text else None
        return record if record and record.expires_at > self._clock() else None


def _input(part: NewPart, task_id: str, *, override: bool) -> Create:
    name = part.filename
    return Create(task_id, (part,), name, complete=True, override=override, is_input=True)


def listed(artifacts: Iterable[StoredArtifact], task_id: str | None) -> list[StoredArtifact]:
    """Return the artifacts that a task, or any task (None), lists, oldest first."""
    shown = (each for each in artifacts if not each.artifact_id.startswith(RESULT_PREFIX))
    of_task = [artifact for artifact in shown if task_id in {None, artifact.task_id}]
    return sorted(of_task, key=lambda artifact: (artifact.created_at, artifact.artifact_id))


def _last(record: ArtifactRecord, index: int, end: int | None) -> int:
    size = part_of(record.artifact, index).size
    return size if end is None else min(end, size)


def _single_blob(content: PartContent) -> str | None:
    """Return the name of the blob with all of a part."""
    if content.joined:
        return content.joined
    is_one = len(content.segments) == 1 and not content.tail
    return content.segments[0].name if is_one else None


# Settings of artifacts.


class ArtifactSettings(Settings):
    """Storage of artifacts: the same for all workers and gateways."""

    artifact_inline_bytes: int = Field(default=INLINE_BYTES, ge=0, le=SEGMENT_BYTES)
    """Size in bytes up to which a part of an artifact stays in Redis. Larger ones move to the blob store."""


def make_artifacts(
    settings: ArtifactSettings, redis: Redis, blobs: Blobs, retention: RetentionSettings
) -> Artifacts:
    """Return the store of these settings. It does not close its arguments."""
    limit = settings.artifact_inline_bytes
    return Artifacts(redis, blobs, ttl=retention.artifact_ttl, inline_limit=limit)
