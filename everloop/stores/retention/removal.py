"""Removes tasks and artifacts on request."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import cast
from urllib.parse import unquote

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.blobs import Blobs
from everloop.runtime.redis import cipher_of, literal, members, transact
from everloop.stores.artifacts.artifact_blobs import ArtifactBlobs
from everloop.stores.artifacts.artifact_errors import MAX_PARTS
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord, folder_of_record, seal_record
from everloop.stores.artifacts.removal import UNREADABLE, read_record, remove_artifact
from everloop.stores.keys import (
    ARTIFACT_RECORD_PREFIX,
    ARTIFACT_TAIL_PREFIX,
    EXPIRING_ARTIFACTS_KEY,
    PENDING_BLOBS_KEY,
    PENDING_BLOBS_PREFIX,
    context_artifacts_key,
    context_tag,
    head_key,
    log_key,
    outcomes_key,
    pending_blobs_key,
    push_configs_key,
    records_key,
    registry_key,
    route_key,
    secrets_key,
    snapshot_key,
)
from everloop.stores.retention.users import remove_folder
from everloop.workflows.contract.names import root_task_id

_OPEN = "open"
"""Field of the registry that is not a key."""

_KEYS = (
    registry_key,
    head_key,
    log_key,
    snapshot_key,
    route_key,
    records_key,
    outcomes_key,
    secrets_key,
    push_configs_key,
)
"""Keys of each client's task. Keys with other parts in their names, transcripts, are in the registry."""


class TaskRemoval:
    """Removes the data of tasks in their hash slots in Redis. It is safe to repeat."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def keys_of(self, task_ids: Sequence[str]) -> int:
        """Remove the keys of clients' tasks and their sub-agents; return their number."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hkeys(registry_key(task_id))
            registered = cast("list[list[str]]", await pipeline.execute())
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id, keys in zip(task_ids, registered, strict=True):
                own = {name(task_id) for name in _KEYS}
                pipeline.unlink(*{*keys, *own} - {_OPEN})
            return sum(cast("list[int]", await pipeline.execute()))


class ArtifactRemoval:
    """Removes artifacts with their blobs. It is safe to repeat.

    Blobs go first: a repetition after a crash finds the rest by the record.
    """

    def __init__(self, redis: Redis, blobs: Blobs) -> None:
        self._redis = redis
        self._blobs = blobs
        self._kept = ArtifactBlobs(redis, blobs)

    async def of_context(self, context: str, task_id: str = "") -> tuple[int, int]:
        """Remove all artifacts of a context, or those of one task and its sub-agents.

        Return the numbers of artifacts and blobs.

        Raises:
            BlobsUnavailableError, RedisError: Some may be left.
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
        """Return whether a context has an artifact."""
        return bool(await self._redis.exists(context_artifacts_key(context)))

    async def one(self, context: str, artifact_id: str) -> tuple[int, int]:
        """Remove one artifact; return and raise as `of_context` does."""
        key = ArtifactAddress(context, artifact_id).record_key
        was_there = int(await self._redis.exists(key))
        return was_there, await self._remove(context, key, await self._read(key))

    async def prolong(self, context: str, until: datetime, task_id: str = "") -> None:
        """Keep the artifacts of a context, or those of one task, at least until then."""
        for key in cast("list[str]", await self._redis.zrange(context_artifacts_key(context), 0, -1)):
            prolong = partial(self._prolong, key=key, until=until, task_id=task_id)
            if await transact(self._redis, prolong, key):
                await self._redis.zadd(EXPIRING_ARTIFACTS_KEY, {key: until.timestamp()}, gt=True)

    async def _prolong(self, pipeline: Pipeline, key: str, until: datetime, task_id: str) -> bool:
        record = await self._read(key)
        pipeline.multi()
        if record is None or record.expires_at >= until:
            return False
        if task_id and root_task_id(record.artifact.task_id) != task_id:
            return False
        longer = record.model_copy(update={"expires_at": until})
        pipeline.set(key, seal_record(longer, cipher_of(self._redis)))
        return True

    async def contexts_of(self, prefix: str) -> set[str]:
        """Return the contexts, by keys with a prefix, that have or had artifacts."""
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
        """Return a record, even an expired one, or None if it is missing or unreadable."""
        with suppress(*UNREADABLE):
            return await read_record(self._redis, record_key)
        return None

    async def _remove(self, context: str, record_key: str, record: ArtifactRecord | None) -> int:
        blobs = set(record.blob_keys()) if record else set[str]()
        for blob in blobs:
            await self._blobs.delete(blob)
        blobs |= set(await remove_folder(self._blobs, folder_of_record(record_key)))
        if record:
            await remove_artifact(self._redis, self._kept, record_key)
            await self._redis.zrem(record.address.pending_key, *(blobs or {""}))
        else:  # its encryption key may be lost, and with it the number of tails
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
