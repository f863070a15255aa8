"""What only blobs in Redis promise: they take little memory, and for a limited time."""

import hashlib
import json
import os
import zlib

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import ARTIFACT_FOLDER, PROBE_KEY, seal
from everloop.stores.blobs.redis import RedisBlobs, blob_key
from tests.stores.blobs.blob_rig import new_key

CONTENT = json.dumps(
    [{"text": f"row {number} of a table", "number": number} for number in range(10_000)]
).encode()
DIGEST_BYTES = hashlib.sha256().digest_size


async def test_redis_keeps_a_blob_for_its_ttl_after_each_use(redis: Redis) -> None:
    """Put and get both start the time to live of a blob anew; the id of the store has none."""
    blobs, key = RedisBlobs(redis), new_key()
    await blobs.put(key, CONTENT)
    await redis.persist(blob_key(key))
    await blobs.get(key)
    days = await redis.ttl(blob_key(key)) / 86_400
    assert 29 < days <= 30
    await blobs.put(PROBE_KEY, b"id")
    await blobs.get(PROBE_KEY)
    assert await redis.ttl(blob_key(PROBE_KEY)) == -1


async def test_second_put_counts_as_a_use(redis: Redis) -> None:
    """A put of content that is there already starts the time to live anew as well."""
    blobs, key = RedisBlobs(redis), new_key()
    await blobs.put(key, CONTENT)
    await redis.expire(blob_key(key), 60)
    await blobs.put(key, CONTENT)
    assert await redis.ttl(blob_key(key)) > 60


async def test_blobs_of_artifacts_have_no_time_to_live(redis: Redis) -> None:
    """An artifact outlives its first blobs' days in Redis: its store deletes them, nobody else."""
    blobs, key = RedisBlobs(redis), f"{ARTIFACT_FOLDER}/{new_key()}"
    await blobs.put(key, CONTENT)
    assert await redis.ttl(blob_key(key)) == -1
    await blobs.get(key)
    assert await redis.ttl(blob_key(key)) == -1


async def test_what_can_be_compressed_is(redis: Redis) -> None:
    """Rows as JSON take less than a third of their length in Redis."""
    blobs, key = RedisBlobs(redis), new_key()
    await blobs.put(key, CONTENT)
    assert await redis.strlen(blob_key(key)) < len(CONTENT) / 3


async def test_what_cannot_be_compressed_stays_as_it_is(redis: Redis) -> None:
    """Content that zlib would only make longer takes its length and that of the checksum."""
    blobs, key, content = RedisBlobs(redis), new_key(), os.urandom(100_000)
    await blobs.put(key, content)
    assert await redis.strlen(blob_key(key)) == len(content) + DIGEST_BYTES
    assert await blobs.get(key) == content


@pytest.mark.parametrize("content", [b"", CONTENT, zlib.compress(CONTENT)], ids=["empty", "plain", "zlib"])
async def test_blobs_of_older_versions_stay_readable(redis: Redis, content: bytes) -> None:
    """What was put before blobs were compressed comes back as it was, also if it looks compressed."""
    blobs, key = RedisBlobs(redis), new_key()
    await redis.set(blob_key(key), seal(content))
    assert await blobs.get(key) == content
    await blobs.put(key, content)
    assert await blobs.get(key) == content


async def test_id_of_the_store_of_an_older_version_stays(own_redis: Redis) -> None:
    """The id that an older version put is read as it is, so that its deployment goes on."""
    await own_redis.set(blob_key(PROBE_KEY), seal(b"older"))
    assert await RedisBlobs(own_redis).get(PROBE_KEY) == b"older"
