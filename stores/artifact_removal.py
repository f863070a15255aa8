"""Removes an artifact from Redis, with all of its content."""

from collections.abc import Callable
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import WatchError

from everloop.stores.artifact_blobs import ArtifactBlobs
from everloop.stores.artifact_record import EXPIRING, ArtifactRecord, unseal_record
from everloop.stores.redis_connection import cipher_of

_MAX_TRIES = 100


async def remove_artifact(
    redis: Redis, blobs: ArtifactBlobs, record_key: str, is_due: Callable[[ArtifactRecord], bool]
) -> bool:
    """Remove the artifact of this record, if it is due, and return whether it was."""
    for tries in range(_MAX_TRIES):
        try:
            removed = await _remove(redis, blobs, record_key, is_due)
        except WatchError:
            if tries == _MAX_TRIES - 1:
                raise
            continue
        await blobs.forget(removed.blob_keys() if removed else [])
        return removed is not None
    return False


async def _remove(
    redis: Redis, blobs: ArtifactBlobs, record_key: str, is_due: Callable[[ArtifactRecord], bool]
) -> ArtifactRecord | None:
    async with redis.pipeline(transaction=True) as pipeline:
        await pipeline.watch(record_key)
        text = cast("str | None", await pipeline.get(record_key))
        record = unseal_record(text, record_key, cipher_of(redis)) if text else None
        if record and not is_due(record):
            return None
        pipeline.multi()
        pipeline.zrem(EXPIRING, record_key)
        if record:
            address = record.address
            tails = [address.tail_key(index) for index in range(len(record.contents))]
            pipeline.delete(record_key, *tails)
            pipeline.zrem(address.index_key, record_key)
            blobs.queue_names(pipeline, named=[], released=record.blob_keys())
        await pipeline.execute()
        return record
