"""Blobs in Redis: a string for each, its content followed by its sha256."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar, cast

from redis.asyncio import Redis
from redis.client import NEVER_DECODE
from redis.exceptions import RedisError

from stores.blobs import (
    PROBE_KEY,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    check_key,
    in_hashing_thread,
    seal,
    unseal,
)

BLOB_TTL = timedelta(days=30)
"""How long a blob is kept after it was last put or read: longer than Temporal keeps a closed workflow."""

T = TypeVar("T")


class RedisBlobs(Blobs):
    """One command and one round trip for each call. `ttl` counts from the last put or get (default 30 days).

    Fit where blobs are few: they take memory, and a task that waits longer than `ttl` loses its own. The id
    of the store has no time to live, because it is read at start only.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = BLOB_TTL) -> None:
        self._redis = redis
        self._ttl = int(ttl.total_seconds())

    @property
    def place(self) -> str:
        return "the blob store in Redis (EVERLOOP_REDIS_URL)"

    async def put(self, key: str, content: bytes) -> None:
        name, ttl = blob_key(key), None if key == PROBE_KEY else self._ttl
        sealed = await in_hashing_thread(lambda: seal(content))
        await self._answer(self._redis.set(name, sealed, ex=ttl))

    async def get(self, key: str) -> bytes:
        name = blob_key(key)
        command = ("GET", name) if key == PROBE_KEY else ("GETEX", name, "EX", self._ttl)
        # The client is set up to decode texts, and a blob is none.
        execute = cast("Callable[..., Awaitable[bytes | None]]", self._redis.execute_command)
        reply = await self._answer(execute(*command, **{NEVER_DECODE: True}))
        if reply is None:
            raise BlobMissingError(key)
        return await in_hashing_thread(lambda: unseal(reply, key))

    async def delete(self, key: str) -> None:
        await self._answer(self._redis.delete(blob_key(key)))

    async def _answer(self, command: Awaitable[T]) -> T:
        try:
            return await command
        except (OSError, RedisError) as error:
            raise BlobsUnavailableError(self.place, error) from error


def blob_key(key: str) -> str:
    """Redis string: a blob."""
    return f"everloop:blob:{check_key(key)}"
