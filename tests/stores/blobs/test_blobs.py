"""Guarantees of each blob store: in memory, in a directory, in Redis and on S3."""

import asyncio
import contextlib
import json
import os
import sys
import zlib
from collections.abc import Generator
from types import FrameType
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.blobs import (
    ARTIFACT_FOLDER,
    PROBE_KEY,
    BlobCorruptError,
    BlobKeyError,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    sha256,
)
from everloop.runtime.redis import connect_redis
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs, blob_key
from everloop.stores.blobs.s3_blobs import MULTIPART_ABOVE, PART_BYTES, S3Blobs
from tests.stores.blobs.blob_rig import ALL_STORES, BlobRig, Damaged, new_key, open_rig

CONTENT = bytes(range(256)) * 4000
NOISE = os.urandom(2 * PART_BYTES + 77)


@pytest.fixture(params=ALL_STORES)
def rig(request: pytest.FixtureRequest) -> Generator[BlobRig]:
    made = open_rig(str(request.param), request)
    yield made
    if isinstance(made.blobs, S3Blobs | LocalBlobs):
        made.blobs.close()


@pytest.fixture
def blobs(rig: BlobRig) -> Blobs:
    return rig.blobs


@pytest.mark.parametrize(
    "content",
    [b"", b"x", CONTENT, NOISE[:MULTIPART_ABOVE], NOISE[: MULTIPART_ABOVE + 1], NOISE, bytes(len(NOISE))],
    ids=["empty", "short", "1 MB", "one upload", "two parts", "noise", "zeros"],
)
async def test_returns_what_was_put(blobs: Blobs, content: bytes) -> None:
    """Content of any length and bytes is returned unchanged."""
    key = new_key()
    await blobs.put(key, content)
    assert await blobs.get(key) == content


async def test_missing_blob_is_told_by_key_alone(blobs: Blobs) -> None:
    """A missing blob raises BlobMissingError with the key, not the place, because clients read it."""
    key = new_key()
    with pytest.raises(BlobMissingError) as raised:
        await blobs.get(key)
    assert key in str(raised.value)
    assert blobs.location not in str(raised.value)


async def test_deleted_blob_is_missing_and_can_be_put_again(blobs: Blobs) -> None:
    """Delete and put may be repeated, as after a crash; the next put restores the blob."""
    key = new_key()
    for _ in range(2):
        await blobs.put(key, CONTENT)
        await blobs.put(key, CONTENT)
        assert await blobs.get(key) == CONTENT
        await blobs.delete(key)
        await blobs.delete(key)
        with pytest.raises(BlobMissingError):
            await blobs.get(key)


@pytest.mark.parametrize("content", [CONTENT, NOISE], ids=["1 MB", "large"])
@pytest.mark.parametrize("what", ["content", "checksum"])
async def test_damaged_blob_is_never_returned(rig: BlobRig, what: Damaged, content: bytes) -> None:
    """A mismatch of content and sha256 raises BlobCorruptError with the key alone."""
    key = new_key()
    await rig.blobs.put(key, content)
    await rig.damage(key, what)
    with pytest.raises(BlobCorruptError) as raised:
        await rig.blobs.get(key)
    assert key in str(raised.value)
    assert rig.blobs.location not in str(raised.value)


@pytest.mark.parametrize("what", ["content", "checksum"])
async def test_put_mends_a_damaged_blob(rig: BlobRig, what: Damaged) -> None:
    """The next put, such as of a replayed workflow, repairs a damaged blob."""
    if isinstance(rig.blobs, S3Blobs) and what == "content":
        pytest.skip("S3 itself answers for its content, which is not read again before a put")
    key = new_key()
    await rig.blobs.put(key, CONTENT)
    await rig.damage(key, what)
    await rig.blobs.put(key, CONTENT)
    assert await rig.blobs.get(key) == CONTENT


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", ".unfinished/x", "a\nb", "a" * 201]
)
async def test_no_key_leads_out_of_the_store(blobs: Blobs, key: str) -> None:
    """Put, get and delete refuse any key but a plain relative one."""
    for call in (blobs.put(key, b""), blobs.get(key), blobs.delete(key)):
        with pytest.raises(BlobKeyError):
            await call


@pytest.mark.parametrize("content", [CONTENT, NOISE], ids=["1 MB", "large"])
async def test_reader_never_sees_half_a_blob(
    blobs: Blobs, content: bytes, request: pytest.FixtureRequest
) -> None:
    """A concurrent reader gets a complete blob or none; two writers do not harm each other."""
    key = new_key()
    writer_count = 1 if "s3" in request.node.name else 2  # moto, unlike S3, fails with two
    writers = asyncio.gather(*(blobs.put(key, content) for _ in range(writer_count)))
    while not writers.done():
        with contextlib.suppress(BlobMissingError):
            assert await blobs.get(key) == content
        await asyncio.sleep(0)  # the store in memory never waits
    await writers
    assert await blobs.get(key) == content


@contextlib.contextmanager
def hashes_here() -> Generator[list[str]]:
    """Collect the checksums and compressions of this thread."""
    found: list[str] = []

    def note(_frame: FrameType, event: str, function: object) -> None:
        name = str(getattr(function, "__name__", ""))
        if event == "c_call" and name.endswith(("sha256", "compress")):
            found.append(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("rig", ["local", "redis", "s3"], indirect=True)
async def test_loop_reads_no_content(blobs: Blobs) -> None:
    """No store computes a checksum or compresses content in the event loop's thread."""
    key = new_key()
    with hashes_here() as found:
        await blobs.put(key, CONTENT)
        await blobs.put(key, CONTENT)
        await blobs.get(key)
        assert not found
        sha256(CONTENT)
        zlib.compress(CONTENT)
    assert len(found) == 2  # so that the check can fail


async def test_store_that_is_away_is_not_a_missing_blob(s3_endpoint: str) -> None:
    """A missing server, bucket or Redis is a retryable failure of reads and writes."""
    nowhere = f"{LOOPBACK}:{free_port()}"
    async with connect_redis(f"redis://{nowhere}/0") as redis:
        away = [
            S3Blobs("bucket", endpoint=f"http://{nowhere}"),
            S3Blobs(f"blobs-{uuid4()}", endpoint=s3_endpoint),
            RedisBlobs(redis),
        ]
        for blobs in away:
            with pytest.raises(BlobsUnavailableError):
                await blobs.get(new_key())
            with pytest.raises(BlobsUnavailableError):
                await blobs.put(new_key(), CONTENT)
    for blobs in away:
        if isinstance(blobs, S3Blobs):
            blobs.close()


# Guarantees of blobs in Redis alone: little memory, and a limited time.

ROWS = json.dumps(
    [{"text": f"row {number} of a table", "number": number} for number in range(10_000)]
).encode()


async def test_redis_keeps_a_blob_for_its_ttl_after_each_use(redis: Redis) -> None:
    """A put, also a repeated one, and a get restart a blob's time to live; the store's id has none."""
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
    """Blobs of artifacts do not expire in Redis: only the artifact store deletes them."""
    blobs, key = RedisBlobs(redis), f"{ARTIFACT_FOLDER}/{new_key()}"
    await blobs.put(key, CONTENT)
    assert await redis.ttl(blob_key(key)) == -1
    await blobs.get(key)
    assert await redis.ttl(blob_key(key)) == -1


async def test_what_can_be_compressed_is(redis: Redis) -> None:
    """Compressible content, such as JSON rows, takes less than a third of its length.

    Other content is stored as it is.
    """
    blobs, key, noise = RedisBlobs(redis), new_key(), os.urandom(100_000)
    await blobs.put(key, ROWS)
    assert await redis.strlen(blob_key(key)) < len(ROWS) / 3
    for content in (noise, zlib.compress(ROWS)):
        key = new_key()
        await blobs.put(key, content)
        assert await blobs.get(key) == content
