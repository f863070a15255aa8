"""Removes blobs of artifacts that no artifact names and that no change has left pending (`ArtifactBlobs`).

Such blobs are left where Redis itself was lost: a search through the blob store finds them. It begins only
when as much time has passed since then as an artifact lives: a backup of Redis may bring the artifacts back.
"""

import time
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import cast

from pydantic import ValidationError
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.stores.artifact_record import EXPIRING, KNOWN_SINCE, PENDING, folder_of_record, unseal_record
from everloop.stores.blob_users import namespace_id, require_sole_user
from everloop.stores.blobs import ARTIFACT_FOLDER, Blobs
from everloop.stores.cleaned import Cleaned
from everloop.stores.encryption import EncryptionError
from everloop.stores.redis_connection import cipher_of

_SCANNED = 1000

UNFINISHED_AGE = timedelta(days=1)
"""How long what was left half written is left alone: nobody writes for so long."""


class AbandonedBlobs:
    """Any number of processes may remove them at once, and each may die. `ttl` is that of artifacts."""

    def __init__(
        self, redis: Redis, blobs: Blobs, client: Client, task_queue: str, *, ttl: timedelta
    ) -> None:
        self._redis = redis
        self._blobs = blobs
        self._client = client
        self._task_queue = task_queue
        self._ttl = ttl

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Look at a page of old blobs from a cursor on, and return how many were (or would be) removed.

        Raises:
            BlobsSharedError: another Everloop uses the store.
            BlobsUnavailableError, RedisError, RPCError: nobody tells now what is needed.
        """
        if (stock := self._blobs.stock) is None:
            return Cleaned(0)
        if not stock.expires:  # where it does, the blobs are in the same Redis as their artifacts
            namespace = await namespace_id(self._client)
            await require_sole_user(self._blobs, stock, namespace, self._task_queue)
        if not cursor and not dry_run:
            await stock.remove_unfinished(UNFINISHED_AGE)
        if not await self._knows_all(dry_run=dry_run):
            return Cleaned(0)
        page = await stock.old(ARTIFACT_FOLDER, self._ttl, cursor)
        unnamed = await self._unnamed(page.keys)
        if dry_run:
            return Cleaned(len(unnamed), page.cursor)
        return Cleaned(sum([await stock.remove(key, self._ttl) for key in unnamed]), page.cursor)

    async def _knows_all(self, *, dry_run: bool) -> bool:
        """Whether Redis was not lost for so long that a blob which it does not name has no artifact."""
        if not dry_run:
            await self._redis.set(KNOWN_SINCE, time.time(), nx=True)
        since = cast("str | None", await self._redis.get(KNOWN_SINCE))
        return since is not None and time.time() - float(since) >= self._ttl.total_seconds()

    async def _unnamed(self, keys: Iterable[str]) -> list[str]:
        """Return those of these blobs that no record names and that do not wait for one."""
        of_folder: dict[str, set[str]] = {}
        for key in keys:
            of_folder.setdefault(key.rpartition("/")[0], set()).add(key)
        if not of_folder:
            return []
        async for record_key in self._record_keys():
            if (folder := folder_of_record(record_key)) in of_folder:
                of_folder[folder] -= await self._named(record_key, of_folder[folder])
        unnamed = sorted(key for named in of_folder.values() for key in named)
        if not unnamed:
            return []
        pending = await self._redis.zmscore(PENDING, unnamed)
        return [key for key, since in zip(unnamed, pending, strict=True) if since is None]

    async def _record_keys(self) -> AsyncIterator[str]:
        position = 0
        while True:
            scan = self._redis.zscan(EXPIRING, position, count=_SCANNED)
            position, found = cast("tuple[int, list[tuple[str, float]]]", await scan)
            for record_key, _ in found:
                yield record_key
            if not position:
                return

    async def _named(self, record_key: str, keys: set[str]) -> set[str]:
        """Return the keys that a record names; all of them if it cannot be read."""
        text = cast("str | None", await self._redis.get(record_key))
        try:
            record = unseal_record(text, record_key, cipher_of(self._redis)) if text else None
        except (EncryptionError, ValidationError):
            return keys
        return set(record.blob_keys()) if record else set()
