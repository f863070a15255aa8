"""Removes artifacts whose time to live has ended, and blobs that processes which died left behind."""

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
from everloop.stores.artifacts.blobs import MOST, ArtifactBlobs
from everloop.stores.artifacts.record import folder_of_record, now
from everloop.stores.artifacts.removal import UNREADABLE, read_record, remove_artifact
from everloop.stores.keys import ARTIFACTS_KNOWN_SINCE_KEY, EXPIRING_ARTIFACTS_KEY
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.retention.users import require_sole_user

UNFINISHED_AGE = timedelta(days=1)
"""How long what was left half written is left alone: nobody writes for so long."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class ExpiredArtifacts:
    """Any number of processes may remove them at once, and each may die at any point of it."""

    def __init__(self, redis: Redis, blobs: Blobs, *, clock: Callable[[], datetime] = now) -> None:
        self._redis = redis
        self._blobs = ArtifactBlobs(redis, blobs)
        self._clock = clock

    async def clean(self, cursor: str = "", *, dry_run: bool = False) -> Cleaned:
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

    async def _clean(self, record_key: str, at: datetime) -> bool | None:
        """Whether it was removed; else it was changed since it was listed. None: it cannot be read."""
        try:
            return await remove_artifact(self._redis, self._blobs, record_key, at)
        except UNREADABLE:
            _log.warning("record of an artifact cannot be read", record_key=record_key)
            return None


class PendingBlobs:
    """Blobs of changes that were never made. Any number of processes may remove them at once."""

    def __init__(self, redis: Redis, blobs: Blobs) -> None:
        self._blobs = ArtifactBlobs(redis, blobs)

    async def clean(self, _: str = "", *, dry_run: bool = False) -> Cleaned:
        """Delete blobs that have been pending for an hour, 1,000 at most; return how many were (or would be).

        Raises:
            RedisError: Redis is away. A blob store that is away is no error: it is for the next run.
        """
        if dry_run:
            return Cleaned(await self._blobs.count_orphaned())
        removed = await self._blobs.forget_orphaned()
        return Cleaned(removed, "due" if removed == MOST else "")


class OrphanedBlobs:
    """Blobs of artifacts that no artifact names and that no change has left pending (`ArtifactBlobs`).

    Such blobs are left where Redis itself was lost: a search through the blob store finds them. It begins
    only when as much time has passed since then as an artifact lives: a backup of Redis may bring the
    artifacts back.

    Any number of processes may remove them at once, and each may die. `ttl` is that of artifacts.
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
            record = await read_record(self._redis, record_key)
        except UNREADABLE:
            return keys
        return set(record.blob_keys()) if record else set()
