"""Removes an artifact from Redis, with all of its content."""

from datetime import datetime
from typing import cast

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of, transact
from everloop.stores.artifacts.artifact_blobs import ArtifactBlobs
from everloop.stores.artifacts.record import ArtifactRecord, now, unseal_record
from everloop.stores.keys import EXPIRING_ARTIFACTS_KEY
from everloop.stores.scripts import remove_older

UNREADABLE = (EncryptionError, ValidationError)
"""Errors of an unreadable record."""


async def remove_artifact(
    redis: Redis, blobs: ArtifactBlobs, record_key: str, due_at: datetime | None = None
) -> bool:
    """Remove the artifact of this record, if it has expired by a time (None: always).

    Return whether it existed. One that expires later is listed by that time.
    """

    async def remove(pipeline: Pipeline) -> ArtifactRecord | None:
        record = await read_record(pipeline, record_key, redis)
        is_over = record and not (due_at and record.expires_at > due_at)
        released = record.blob_keys() if record and is_over else []
        if record and released:
            await blobs.list_pending(record.address.pending_key)
        pipeline.multi()
        if record and is_over:
            address = record.address
            tails = [address.tail_key(index) for index in range(len(record.contents))]
            pipeline.delete(record_key, *tails)
            pipeline.zrem(address.index_key, record_key)
            blobs.queue_names(pipeline, address.pending_key, named=[], released=released)
        return record

    record = await transact(redis, remove, record_key)
    if record and due_at and record.expires_at > due_at:
        later = {record_key: record.expires_at.timestamp()}
        await redis.zadd(EXPIRING_ARTIFACTS_KEY, later, xx=True, gt=True)
        return False
    gone_at = record.expires_at if record else due_at or now()
    await remove_older(redis, EXPIRING_ARTIFACTS_KEY, record_key, gone_at.timestamp())
    if record:
        await blobs.forget(record.blob_keys(), record.address.pending_key)
    return record is not None


async def read_record(client: Redis, record_key: str, redis: Redis | None = None) -> ArtifactRecord | None:
    """Return a record, or None. In a pipeline, `redis` is the client with its encryption."""
    text = cast("str | None", await client.get(record_key))
    return unseal_record(text, record_key, cipher_of(redis or client)) if text else None
