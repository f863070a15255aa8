"""Blobs in Redis: a string for each, its content compressed with zlib, followed by its sha256."""

import hashlib
import zlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar, cast

from redis.asyncio import Redis
from redis.client import NEVER_DECODE
from redis.exceptions import RedisError

from everloop.runtime.blobs import (
    ARTIFACT_FOLDER,
    PROBE_KEY,
    BlobCorruptError,
    BlobMissingError,
    BlobPage,
    Blobs,
    BlobsUnavailableError,
    check_key,
    in_hashing_thread,
)
from everloop.runtime.redis import scan_page
from everloop.stores.keys import BLOB_PREFIX

BLOB_TTL = timedelta(days=30)
"""Time to live after the last put or get: longer than Temporal's retention of closed workflows."""

LOCATION = "the blob store in Redis (EVERLOOP_REDIS_URL)"

_SCANNED = 1000
"""Limit of the keys that one call to Redis scans."""

_SCANS = 50
"""Limit of these calls for one page of old blobs."""

_LEVEL = 1
"""Of zlib: texts shrink to about a third. Higher levels take several times as long for a tenth less."""

_DIGEST_BYTES = hashlib.sha256().digest_size

T = TypeVar("T")


class RedisBlobs(Blobs):
    """One or two commands for each call. `ttl` counts from the last put or get (default 30 days).

    Suitable for few blobs: they take memory, and a task that waits longer than `ttl` loses its payloads
    unless the housekeeping renews them. The id of the store has no time to live, because it is read at start
    only, nor have blobs of artifacts, because the store of artifacts deletes them: these are never old.
    Payloads are listed by their remaining time to live.
    """

    location = LOCATION
    expires = True

    def __init__(self, redis: Redis, *, ttl: timedelta = BLOB_TTL) -> None:
        self._redis = redis
        self._ttl = int(ttl.total_seconds())

    async def put(self, key: str, content: bytes) -> None:
        held = await self._get(key)  # replay of a workflow puts all of its payloads again
        if held is not None and await in_hashing_thread(lambda: _is_of(content, held, key)):
            return
        packed = await in_hashing_thread(
            lambda: zlib.compress(content, _LEVEL) + hashlib.sha256(content).digest()
        )
        await self._answer(self._redis.set(blob_key(key), packed, ex=self._ttl_of(key)))

    async def get(self, key: str) -> bytes:
        packed = await self._get(key)
        if packed is None:
            raise BlobMissingError(key)
        return await in_hashing_thread(lambda: _unpack(packed, key))

    async def _get(self, key: str) -> bytes | None:
        """Return the value of a key, and restart its time to live."""
        name, ttl = blob_key(key), self._ttl_of(key)
        command = ("GET", name) if ttl is None else ("GETEX", name, "EX", ttl)
        # The client is set up to decode texts, but a blob is binary.
        execute = cast("Callable[..., Awaitable[bytes | None]]", self._redis.execute_command)
        return await self._answer(execute(*command, **{NEVER_DECODE: True}))

    def _ttl_of(self, key: str) -> int | None:
        return None if key == PROBE_KEY or key.startswith(f"{ARTIFACT_FOLDER}/") else self._ttl

    async def delete(self, key: str) -> None:
        await self._answer(self._redis.delete(blob_key(key)))

    async def list_old(self, folder: str, age: timedelta, cursor: str) -> BlobPage:
        if folder == ARTIFACT_FOLDER:
            return BlobPage(())
        left = self._ttl - age.total_seconds()
        following, names = await self._answer(self._scan(blob_key(folder), cursor))
        ttls = await self._answer(self._ttls(names))
        old = [name for name, ttl in zip(names, ttls, strict=True) if 0 <= ttl <= left]
        return BlobPage(tuple(name.removeprefix(BLOB_PREFIX) for name in old), following)

    async def remove(self, key: str, age: timedelta) -> bool:
        """Do nothing: Redis removes the blob when it expires."""
        return False

    async def renew(self, key: str) -> None:
        await self._answer(self._redis.expire(blob_key(key), self._ttl))

    async def _scan(self, folder: str, cursor: str) -> tuple[str, list[str]]:
        found: list[str] = []
        for _ in range(_SCANS):
            cursor, names = await scan_page(self._redis, cursor, f"{folder}/*", _SCANNED)
            found += names
            if not cursor:
                break
        return cursor, found

    async def _ttls(self, names: Sequence[str]) -> list[int]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.ttl(name)
            return cast("list[int]", await pipeline.execute())

    async def _answer(self, command: Awaitable[T]) -> T:
        try:
            return await command
        except (OSError, RedisError) as error:
            raise BlobsUnavailableError(self.location, error) from error


def blob_key(key: str) -> str:
    """Redis string: a blob."""
    return f"{BLOB_PREFIX}{check_key(key)}"


def _unpack(packed: bytes, key: str) -> bytes:
    """Return the content of a blob.

    Raises:
        BlobCorruptError: Its sha256 differs.
    """
    try:
        content = zlib.decompress(packed[:-_DIGEST_BYTES])
    except zlib.error:
        raise BlobCorruptError(key) from None
    if hashlib.sha256(content).digest() != packed[-_DIGEST_BYTES:]:
        raise BlobCorruptError(key)
    return content


def _is_of(content: bytes, packed: bytes, key: str) -> bool:
    """True if the content equals the packed blob, undamaged."""
    try:
        return _unpack(packed, key) == content
    except BlobCorruptError:
        return False
