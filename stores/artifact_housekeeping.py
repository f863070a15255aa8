"""Clears away artifacts whose time to live has ended, and blobs that processes which died left behind."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, cast

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from everloop.stores.artifact_blobs import ArtifactBlobs
from everloop.stores.artifact_record import EXPIRING, ArtifactRecord
from everloop.stores.artifact_removal import remove_artifact
from everloop.stores.artifacts import now
from everloop.stores.blobs import Blobs
from everloop.stores.cleaned import Cleaned
from everloop.stores.encryption import EncryptionError

_MOST = 1000
"""Artifacts that one run clears away at most; the next ones are for the next run."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class Cleared(NamedTuple):
    """How much a run has cleared away: artifacts that expired, and blobs that were abandoned."""

    artifacts: int
    blobs: int


class ArtifactHousekeeping:
    """Any number of processes may run it at once, and each may die at any point of it."""

    def __init__(self, redis: Redis, blobs: Blobs, *, clock: Callable[[], datetime] = now) -> None:
        self._redis = redis
        self._blobs = ArtifactBlobs(redis, blobs)
        self._clock = clock

    async def run_once(self) -> Cleared:
        """Clear away what is due now.

        Raises:
            RedisError: Redis is away. A blob store that is away is no error: it is for the next run.
        """
        expired = await self.clean_artifacts()
        return Cleared(expired.removed, (await self.clean_pending()).removed)

    async def clean_artifacts(self, cursor: str = "", *, dry_run: bool = False) -> Cleaned:
        """Clear away artifacts that are due now, and return how many were (or would be).

        It looks at 1,000 at most, from a cursor on, which counts those that stay because they cannot be read.
        They stand before all others.

        Raises:
            RedisError: Redis is away.
        """
        at = self._clock()
        if dry_run:
            return Cleaned(await self._redis.zcount(EXPIRING, "-inf", at.timestamp()))
        start = int(cursor) if cursor.isdecimal() else 0
        due = await self._redis.zrangebyscore(EXPIRING, "-inf", at.timestamp(), start=start, num=_MOST)
        expired = sum([await self._is_removed(key, at) for key in cast("list[str]", due)])
        return Cleaned(expired, str(start + len(due) - expired) if len(due) == _MOST else "")

    async def clean_pending(self, *, dry_run: bool = False) -> Cleaned:
        """Delete blobs that have been pending for an hour, 1,000 at most; return how many were (or would be).

        Raises:
            RedisError: Redis is away. A blob store that is away is no error: it is for the next run.
        """
        if dry_run:
            return Cleaned(await self._blobs.count_abandoned())
        removed = await self._blobs.forget_abandoned()
        return Cleaned(removed, "due" if removed == _MOST else "")

    async def _is_removed(self, record_key: str, at: datetime) -> bool:
        def is_due(record: ArtifactRecord) -> bool:
            return record.expires_at <= at  # it may have been changed since

        try:
            return await remove_artifact(self._redis, self._blobs, record_key, is_due)
        except (EncryptionError, ValidationError):
            _log.warning("record of an artifact cannot be read", record_key=record_key)
            return False
