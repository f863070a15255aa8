"""What only blobs in Redis promise: they take little memory, and for a limited time."""

import json
import os
import zlib

from redis.asyncio import Redis

from everloop.runtime.blobs import ARTIFACT_FOLDER, PROBE_KEY
from everloop.stores.blobs.redis import RedisBlobs, blob_key
from tests.stores.blobs.blob_rig import new_key

CONTENT = json.dumps(
    [{"text": f"row {number} of a table", "number": number} for number in range(10_000)]
).encode()


async def test_redis_keeps_a_blob_for_its_ttl_after_each_use(redis: Redis) -> None:
    """Put, also of what is there already, and get start its time to live anew; the store's id has none."""
    blobs, key = RedisBlobs(redis), new_key()
    await blobs.put(key, CONTENT)
    for use in (blobs.get(key), blobs.put(key, CONTENT)):
        await redis.expire(blob_key(key), 60)
        await use
        assert 29 < await redis.ttl(blob_key(key)) / 86_400 <= 30
    await blobs.put(PROBE_KEY, b"id")
    await blobs.get(PROBE_KEY)
    assert await redis.ttl(blob_key(PROBE_KEY)) == -1


async def test_blobs_of_artifacts_have_no_time_to_live(redis: Redis) -> None:
    """An artifact outlives its first blobs' days in Redis: its store deletes them, nobody else."""
    blobs, key = RedisBlobs(redis), f"{ARTIFACT_FOLDER}/{new_key()}"
    await blobs.put(key, CONTENT)
    assert await redis.ttl(blob_key(key)) == -1
    await blobs.get(key)
    assert await redis.ttl(blob_key(key)) == -1


async def test_what_can_be_compressed_is(redis: Redis) -> None:
    """Rows as JSON take less than a third of their length; what zlib makes no shorter is kept as well."""
    blobs, key, noise = RedisBlobs(redis), new_key(), os.urandom(100_000)
    await blobs.put(key, CONTENT)
    assert await redis.strlen(blob_key(key)) < len(CONTENT) / 3
    for content in (noise, zlib.compress(CONTENT)):
        key = new_key()
        await blobs.put(key, content)
        assert await blobs.get(key) == content
