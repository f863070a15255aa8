"""Removes expired artifacts, and leftover blobs of processes that died."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import cast

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger
from temporalio.client import Client

from everloop.runtime.blobs import ARTIFACT_FOLDER, Blobs
from everloop.runtime.redis import members
from everloop.stores.artifacts.artifact_blobs import MOST, ArtifactBlobs
from everloop.stores.artifacts.record import folder_of_record, now
from everloop.stores.artifacts.removal import UNREADABLE, read_record, remove_artifact
from everloop.stores.keys import ARTIFACTS_LISTED_SINCE_KEY, EXPIRING_ARTIFACTS_KEY
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.retention.users import require_sole_user

UNFINISHED_AGE = timedelta(days=1)
"""Age up to which unfinished blobs are not deleted: no write takes so long."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class ExpiredArtifacts:
    """Removes expired artifacts. Processes may do so concurrently, and each may die at any point."""

    def __init__(self, redis: Redis, blobs: Blobs, *, clock: Callable[[], datetime] = now) -> None:
        self._redis = redis
        self._blobs = ArtifactBlobs(redis, blobs)
        self._clock = clock

    async def clean(self, cursor: str = "", *, dry_run: bool = False) -> Cleaned:
        """Remove artifacts that are due, and return how many were (or, at most, would be) removed.

        It checks at most 1,000, from a cursor on, which counts unreadable ones: these stay, and are sorted
        first.

        Raises:
            RedisError: Redis does not answer.
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

    async def _clean(self, record_key: str, at: datetime) -> bool | None:
        """Return True if it was removed, False if it has changed since, None if it is unreadable."""
        try:
            return await remove_artifact(self._redis, self._blobs, record_key, at)
        except UNREADABLE:
            _log.warning("record of an artifact cannot be read", record_key=record_key)
            return None


class PendingBlobs:
    """Blobs of changes that were never made. Processes may remove them concurrently."""

    def __init__(self, redis: Redis, blobs: Blobs) -> None:
        self._blobs = ArtifactBlobs(redis, blobs)

    async def clean(self, _: str = "", *, dry_run: bool = False) -> Cleaned:
        """Delete blobs that have been pending for an hour, at most 1,000; return how many were (or would be).

        Raises:
            RedisError: Redis does not answer. An outage of the blob store is not an error: the next run
            continues.
        """
        if dry_run:
            return Cleaned(await self._blobs.count_orphaned())
        removed = await self._blobs.forget_orphaned()
        return Cleaned(removed, "due" if removed == MOST else "")


class OrphanedBlobs:
    """Removes blobs that neither an artifact nor a set of pending blobs names (`ArtifactBlobs`).

    Such blobs remain after a loss of Redis. A search through the blob store finds them. It begins only after
    the time to live of artifacts has passed since the loss: a backup of Redis may restore the artifacts.

    Processes may remove them concurrently, and each may die. `ttl` is that of artifacts.
    """

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
        """Check a page of old blobs from a cursor on, and return how many were (or would be) removed.

        Raises:
            BlobsSharedError: Another Everloop uses the store.
            BlobsUnavailableError, RedisError, RPCError: A server does not answer.
        """
        if not self._blobs.expires:  # otherwise the blobs are in the same Redis as their artifacts
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
        """True if Redis was not lost for so long that a blob without a record has no artifact."""
        if not dry_run:
            await self._redis.set(ARTIFACTS_LISTED_SINCE_KEY, time.time(), nx=True)
        since = cast("str | None", await self._redis.get(ARTIFACTS_LISTED_SINCE_KEY))
        return since is not None and time.time() - float(since) >= self._ttl.total_seconds()

    async def _unnamed(self, keys: Iterable[str]) -> list[str]:
        """Return the blobs that no record names and that are not pending."""
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
        """Return the keys that a record names, or all of them if it is unreadable."""
        try:
            record = await read_record(self._redis, record_key)
        except UNREADABLE:
            return keys
        return set(record.blob_keys()) if record else set()
