"""Blobs of artifacts. Each is named by a record, or in a set of pending blobs."""

import time
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from everloop.runtime.blobs import BlobError, BlobLinks, Blobs, BlobsUnavailableError, in_hashing_thread
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import PENDING_BLOBS_KEY
from everloop.stores.scripts import remove_older

SEALED = ".sealed"
"""The suffix of the names of encrypted blobs."""

PENDING_TIME = timedelta(hours=1)
"""Time for which a blob without a record is not deleted: its change may be in progress."""

MOST = 1000
"""Limit of the blobs, or artifacts, that one step of the housekeeping removes."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class ArtifactBlobs:
    """Puts blobs before a record names them, and deletes those that are no longer named.

    They are encrypted if this client of Redis encrypts, which their names show. A process may die at any
    point: its leftovers are in the set of pending blobs of their context (`pending_key`), and the
    housekeeping deletes them an hour later. The set is first added to a list of these sets, in a hash slot of
    its own.
    """

    def __init__(self, redis: Redis, blobs: Blobs) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._blobs = blobs

    @property
    def links(self) -> BlobLinks | None:
        """See `Blobs.links`. None if blobs are encrypted: clients could not decrypt them."""
        return None if self._cipher.is_on else self._blobs.links

    def new_name(self) -> str:
        """Return a unique name, as the last word of a key."""
        return uuid.uuid4().hex + (SEALED if self._cipher.is_on else "")

    async def get(self, key: str) -> bytes:
        """See `Blobs.get`.

        A failed decryption counts as an outage of the store, not as a damaged blob: another process may have
        the right key. The store itself detects damage.
        """
        stored = await self._blobs.get(key)
        if not key.endswith(SEALED):
            return stored
        try:
            return await in_hashing_thread(lambda: self._cipher.unseal(stored, _purpose(key)))
        except EncryptionError as error:
            raise BlobsUnavailableError(self._blobs.location, error) from error

    async def put(
        self, puts: Mapping[str, bytes], joins: Mapping[str, Sequence[str]], pending_key: str
    ) -> list[str]:
        """Put blobs and return their keys. `named` makes them permanent.

        A blob that cannot be joined is left out: clients then get the content through the gateway.

        Raises:
            BlobsUnavailableError: Some may or may not be stored; put others.
        """
        keys = [*puts, *joins]
        if keys:
            await self.list_pending(pending_key)
            await self._redis.zadd(pending_key, dict.fromkeys(keys, time.time()))
        for key, content in puts.items():
            await self._blobs.put(key, await self._sealed(key, content))
        joined = [key for key, sources in joins.items() if await self._is_joined(key, sources)]
        return [*puts, *joined]

    async def list_pending(self, pending_key: str) -> None:
        """Add a set to the housekeeping's list. Do this before a blob is put into the set."""
        await self._redis.zadd(PENDING_BLOBS_KEY, {pending_key: time.time()})

    def queue_names(
        self, pipeline: Pipeline, pending_key: str, named: Sequence[str], released: Sequence[str]
    ) -> None:
        """Queue the change of the blobs that a record names in a transaction.

        If some are released, their set has to be listed before.
        """
        if named:
            pipeline.zrem(pending_key, *named)
        if released:
            pipeline.zadd(pending_key, dict.fromkeys(released, time.time()))

    async def forget(self, keys: Sequence[str], pending_key: str) -> None:
        """Delete pending blobs that no record names. The housekeeping deletes those that fail now."""
        for key in keys:
            await _tried(self._forget(key, pending_key), key)

    async def forget_orphaned(self) -> int:
        """Delete blobs that have been pending for an hour, at most 1,000, and return their number."""
        removed, oldest = 0, _oldest()
        for pending_key in await self._pending_keys(oldest):
            due = await self._redis.zrangebyscore(pending_key, "-inf", oldest, start=0, num=MOST - removed)
            removed += sum([await _tried(self._forget(str(key), pending_key), str(key)) for key in due])
            if not await self._redis.zcard(pending_key):
                await remove_older(self._redis, PENDING_BLOBS_KEY, pending_key, oldest)
            if removed == MOST:
                break
        return removed

    async def count_orphaned(self) -> int:
        """Return the number of blobs that have been pending for an hour."""
        oldest = _oldest()
        return sum(
            [await self._redis.zcount(key, "-inf", oldest) for key in await self._pending_keys(oldest)]
        )

    async def pending(self) -> set[str]:
        """Return all blobs that no record names, before or after their time in one."""
        keys = await self._pending_keys("+inf")
        members = [cast("list[str]", await self._redis.zrange(key, 0, -1)) for key in keys]
        return {blob for each in members for blob in each}

    async def _pending_keys(self, latest: float | str) -> list[str]:
        """Return the sets into which no blob was put after a time."""
        return cast("list[str]", await self._redis.zrangebyscore(PENDING_BLOBS_KEY, "-inf", latest))

    async def _sealed(self, key: str, content: bytes) -> bytes:
        """Return content as it is stored."""
        if not key.endswith(SEALED):
            return content
        return await in_hashing_thread(lambda: self._cipher.seal(content, _purpose(key)))

    async def _forget(self, key: str, pending_key: str) -> None:
        await self._blobs.delete(key)
        await self._redis.zrem(pending_key, key)

    async def _is_joined(self, key: str, sources: Sequence[str]) -> bool:
        try:
            if self._blobs.links is None:
                return False
            await self._blobs.links.join(key, sources)
        except BlobError as error:
            _log.warning("artifact not joined", key=key, error=str(error))
            return False
        return True


def _purpose(key: str) -> str:
    return f"blob {key}"


def _oldest() -> float:
    return time.time() - PENDING_TIME.total_seconds()


async def _tried(work: Awaitable[None], key: str) -> bool:
    """Return whether it was deleted. The next housekeeping tries again."""
    try:
        await work
    except (BlobsUnavailableError, RedisError, OSError) as error:
        _log.warning("blob of an artifact not deleted", key=key, error=str(error))
        return False
    return True
