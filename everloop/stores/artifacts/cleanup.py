"""Clears away artifacts whose time to live has ended, and blobs that processes which died left behind."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import cast
from urllib.parse import unquote

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import WatchError
from structlog.typing import FilteringBoundLogger
from temporalio.client import Client

from everloop.runtime.blobs import ARTIFACT_FOLDER, Blobs
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of, literal, members
from everloop.stores.artifacts.blobs import MOST, ArtifactBlobs
from everloop.stores.artifacts.errors import MAX_PARTS
from everloop.stores.artifacts.record import (
    ArtifactAddress,
    ArtifactRecord,
    folder_of_record,
    now,
    seal_record,
    unseal_record,
)
from everloop.stores.blobs.cleanup import remove_folder, require_sole_user
from everloop.stores.keys import (
    ARTIFACT_RECORD_PREFIX,
    ARTIFACT_TAIL_PREFIX,
    ARTIFACTS_KNOWN_SINCE_KEY,
    EXPIRING_ARTIFACTS_KEY,
    PENDING_BLOBS_KEY,
    PENDING_BLOBS_PREFIX,
    context_artifacts_key,
    context_tag,
    pending_blobs_key,
)
from everloop.stores.retention import Cleaned
from everloop.stores.scripts import remove_older
from everloop.workflows.contract.names import root_task_id

_log: FilteringBoundLogger = structlog.get_logger(__name__)

# Removes an artifact from Redis, with all of its content.

_MAX_TRIES = 100

_UNREADABLE = (EncryptionError, ValidationError)
"""What says that a record cannot be read."""


async def remove_artifact(
    redis: Redis, blobs: ArtifactBlobs, record_key: str, due_at: datetime | None = None
) -> bool:
    """Remove the artifact of this record, if it has expired by a time (None: in any case).

    Return whether there was one. One that expires later is listed by that time.
    """
    for tries in range(_MAX_TRIES):
        try:
            record = await _remove(redis, blobs, record_key, due_at)
        except WatchError:
            if tries == _MAX_TRIES - 1:
                raise
            continue
        if record and due_at and record.expires_at > due_at:
            later = {record_key: record.expires_at.timestamp()}
            await redis.zadd(EXPIRING_ARTIFACTS_KEY, later, xx=True, gt=True)
            return False
        gone_at = record.expires_at if record else due_at or now()
        await remove_older(redis, EXPIRING_ARTIFACTS_KEY, record_key, gone_at.timestamp())
        if record:
            await blobs.forget(record.blob_keys(), record.address.pending_key)
        return record is not None
    return False


async def _remove(
    redis: Redis, blobs: ArtifactBlobs, record_key: str, due_at: datetime | None
) -> ArtifactRecord | None:
    async with redis.pipeline(transaction=True) as pipeline:
        await pipeline.watch(record_key)
        record = await _read(pipeline, record_key, redis)
        if record is None or (due_at and record.expires_at > due_at):
            return record
        address = record.address
        if released := record.blob_keys():
            await blobs.list_pending(address.pending_key)
        pipeline.multi()
        tails = [address.tail_key(index) for index in range(len(record.contents))]
        pipeline.delete(record_key, *tails)
        pipeline.zrem(address.index_key, record_key)
        blobs.queue_names(pipeline, address.pending_key, named=[], released=released)
        await pipeline.execute()
        return record


async def _read(client: Redis, record_key: str, redis: Redis | None = None) -> ArtifactRecord | None:
    """Return a record, None if there is none; the `redis` of a pipeline knows how it is encrypted."""
    text = cast("str | None", await client.get(record_key))
    return unseal_record(text, record_key, cipher_of(redis or client)) if text else None


class ArtifactHousekeeping:
    """Any number of processes may run it at once, and each may die at any point of it."""

    def __init__(self, redis: Redis, blobs: Blobs, *, clock: Callable[[], datetime] = now) -> None:
        self._redis = redis
        self._blobs = ArtifactBlobs(redis, blobs)
        self._clock = clock

    async def clean_artifacts(self, cursor: str = "", *, dry_run: bool = False) -> Cleaned:
        """Clear away artifacts that are due now, and return how many were (or, at most, would be).

        It looks at 1,000 at most, from a cursor on, which counts those that stay because they cannot be read.
        They stand before all others.

        Raises:
            RedisError: Redis is away.
        """
        at = self._clock()
        if dry_run:
            return Cleaned(await self._redis.zcount(EXPIRING_ARTIFACTS_KEY, "-inf", at.timestamp()))
        start = int(cursor) if cursor.isdecimal() else 0
        due = await self._redis.zrangebyscore(
            EXPIRING_ARTIFACTS_KEY, "-inf", at.timestamp(), start=start, num=MOST
        )
        outcomes = [await self._clean(key, at) for key in cast("list[str]", due)]
        unreadable = outcomes.count(None)
        return Cleaned(outcomes.count(True), str(start + unreadable) if len(due) == MOST else "")

    async def clean_pending(self, *, dry_run: bool = False) -> Cleaned:
        """Delete blobs that have been pending for an hour, 1,000 at most; return how many were (or would be).

        Raises:
            RedisError: Redis is away. A blob store that is away is no error: it is for the next run.
        """
        if dry_run:
            return Cleaned(await self._blobs.count_orphaned())
        removed = await self._blobs.forget_orphaned()
        return Cleaned(removed, "due" if removed == MOST else "")

    async def _clean(self, record_key: str, at: datetime) -> bool | None:
        """Whether it was removed; else it was changed since it was listed. None: it cannot be read."""
        try:
            return await remove_artifact(self._redis, self._blobs, record_key, at)
        except _UNREADABLE:
            _log.warning("record of an artifact cannot be read", record_key=record_key)
            return None


# Removes blobs of artifacts that no artifact names and that no change has left pending (`ArtifactBlobs`).
#
# Such blobs are left where Redis itself was lost: a search through the blob store finds them. It begins only
# when as much time has passed since then as an artifact lives: a backup of Redis may bring the artifacts
# back.

UNFINISHED_AGE = timedelta(days=1)
"""How long what was left half written is left alone: nobody writes for so long."""


class OrphanedBlobs:
    """Any number of processes may remove them at once, and each may die. `ttl` is that of artifacts."""

    def __init__(
        self, redis: Redis, blobs: Blobs, client: Client, task_queue: str, *, ttl: timedelta
    ) -> None:
        self._redis = redis
        self._blobs = blobs
        self._kept = ArtifactBlobs(redis, blobs)
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Look at a page of old blobs from a cursor on, and return how many were (or would be) removed.

        Raises:
            BlobsSharedError: another Everloop uses the store.
            BlobsUnavailableError, RedisError, RPCError: what is needed cannot be found out now.
        """
        if not self._blobs.expires:  # where it does, the blobs are in the same Redis as their artifacts
            await require_sole_user(self._blobs, self._client, self._task_queue)
        if not cursor and not dry_run:
            await self._blobs.remove_unfinished(UNFINISHED_AGE)
        if not await self._knows_all(dry_run=dry_run):
            return Cleaned(0)
        page = await self._blobs.list_old(ARTIFACT_FOLDER, self._ttl, cursor)
        unnamed = await self._unnamed(page.keys)
        if dry_run:
            return Cleaned(len(unnamed), page.cursor)
        return Cleaned(sum([await self._blobs.remove(key, self._ttl) for key in unnamed]), page.cursor)

    async def _knows_all(self, *, dry_run: bool) -> bool:
        """Whether Redis was not lost for so long that a blob which it does not name has no artifact."""
        if not dry_run:
            await self._redis.set(ARTIFACTS_KNOWN_SINCE_KEY, time.time(), nx=True)
        since = cast("str | None", await self._redis.get(ARTIFACTS_KNOWN_SINCE_KEY))
        return since is not None and time.time() - float(since) >= self._ttl.total_seconds()

    async def _unnamed(self, keys: Iterable[str]) -> list[str]:
        """Return those of these blobs that no record names and that do not wait for one."""
        of_folder: dict[str, set[str]] = {}
        for key in keys:
            of_folder.setdefault(key.rpartition("/")[0], set()).add(key)
        if not of_folder:
            return []
        async for record_key in members(self._redis, EXPIRING_ARTIFACTS_KEY, "*"):
            if (folder := folder_of_record(record_key)) in of_folder:
                of_folder[folder] -= await self._named(record_key, of_folder[folder])
        unnamed = {key for named in of_folder.values() for key in named}
        return sorted(unnamed - await self._kept.pending()) if unnamed else []

    async def _named(self, record_key: str, keys: set[str]) -> set[str]:
        """Return the keys that a record names; all of them if it cannot be read."""
        try:
            record = await _read(self._redis, record_key)
        except _UNREADABLE:
            return keys
        return set(record.blob_keys()) if record else set()


# Removes artifacts that somebody wants to be gone.


class ArtifactRemoval:
    """Removes artifacts with their blobs, and is not done before these are gone; it is safe to repeat.

    Blobs go first: whoever goes on after a crash finds the rest by the record.
    """

    def __init__(self, redis: Redis, blobs: Blobs) -> None:
        self._redis = redis
        self._blobs = blobs
        self._kept = ArtifactBlobs(redis, blobs)

    async def of_context(self, context: str, task_id: str = "") -> tuple[int, int]:
        """Remove all artifacts of a context, or those of one task and its sub-agents.

        Return how many artifacts and blobs there were.

        Raises:
            BlobsUnavailableError, RedisError: some may be left.
        """
        keys = cast("list[str]", await self._redis.zrange(context_artifacts_key(context), 0, -1))
        artifacts = blobs = 0
        for key in keys:
            record = await self._read(key)
            if task_id and (record is None or root_task_id(record.artifact.task_id) != task_id):
                continue
            artifacts += 1
            blobs += await self._remove(context, key, record)
        if not task_id:
            blobs += await self._remove_pending(pending_blobs_key(context))
            await self._redis.delete(context_artifacts_key(context))
        return artifacts, blobs

    async def has_any(self, context: str) -> bool:
        """Say whether a context has an artifact."""
        return bool(await self._redis.exists(context_artifacts_key(context)))

    async def one(self, context: str, artifact_id: str) -> tuple[int, int]:
        """Remove one artifact; return and raise as `of_context` does."""
        key = ArtifactAddress(context, artifact_id).record_key
        was_there = int(await self._redis.exists(key))
        return was_there, await self._remove(context, key, await self._read(key))

    async def prolong(self, context: str, until: datetime, task_id: str = "") -> None:
        """Keep the artifacts of a context, or those of one task, at least until then."""
        for key in cast("list[str]", await self._redis.zrange(context_artifacts_key(context), 0, -1)):
            async with self._redis.pipeline(transaction=True) as pipeline:
                await pipeline.watch(key)
                record = await self._read(key)
                if record is None or record.expires_at >= until:
                    continue
                if task_id and root_task_id(record.artifact.task_id) != task_id:
                    continue
                pipeline.multi()
                longer = record.model_copy(update={"expires_at": until})
                pipeline.set(key, seal_record(longer, cipher_of(self._redis)))
                with suppress(
                    WatchError
                ):  # whoever changed it meanwhile prolonged it, too; the next look tells
                    await pipeline.execute()
                    await self._redis.zadd(EXPIRING_ARTIFACTS_KEY, {key: until.timestamp()}, gt=True)

    async def contexts_of(self, prefix: str) -> set[str]:
        """Return the contexts, by their keys, whose keys begin so and that have artifacts, or had them."""
        tags = set[str]()
        for key, before in (
            (EXPIRING_ARTIFACTS_KEY, ARTIFACT_RECORD_PREFIX),
            (PENDING_BLOBS_KEY, PENDING_BLOBS_PREFIX),
        ):
            match = f"{literal(before + context_tag(prefix)[:-1])}*"
            names = [name async for name in members(self._redis, key, match)]
            tags |= {name.removeprefix(before).partition("}")[0].removeprefix("{") for name in names}
        return set(map(unquote, tags))

    async def _read(self, record_key: str) -> ArtifactRecord | None:
        """Return a record, also of one that has expired; None where there is none, or it cannot be read."""
        with suppress(*_UNREADABLE):
            return await _read(self._redis, record_key)
        return None

    async def _remove(self, context: str, record_key: str, record: ArtifactRecord | None) -> int:
        blobs = set(record.blob_keys()) if record else set[str]()
        for blob in blobs:
            await self._blobs.delete(blob)
        blobs |= set(await remove_folder(self._blobs, folder_of_record(record_key)))
        if record:
            await remove_artifact(self._redis, self._kept, record_key)
            await self._redis.zrem(record.address.pending_key, *(blobs or {""}))
        else:  # the key that encrypts it may be lost, and with it how many tails there are
            name = record_key.removeprefix(ARTIFACT_RECORD_PREFIX)
            tails = [f"{ARTIFACT_TAIL_PREFIX}{name}:{index}" for index in range(MAX_PARTS)]
            await self._redis.unlink(record_key, *tails)
            await self._redis.zrem(context_artifacts_key(context), record_key)
            await self._redis.zrem(EXPIRING_ARTIFACTS_KEY, record_key)
        return len(blobs)

    async def _remove_pending(self, pending_key: str) -> int:
        blobs = cast("list[str]", await self._redis.zrange(pending_key, 0, -1))
        for blob in blobs:
            await self._blobs.delete(blob)
        await self._redis.delete(pending_key)
        await self._redis.zrem(PENDING_BLOBS_KEY, pending_key)
        return len(blobs)
