"""Every blob store keeps the same promises: in memory, in a directory, in Redis and in S3."""

import asyncio
import base64
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pydantic import ValidationError
from redis.asyncio import Redis

from deploy.local.servers import LOOPBACK, free_port
from stores.blob_settings import BlobSettings, opened_blobs
from stores.blobs import (
    PROBE_KEY,
    BlobCorruptError,
    BlobKeyError,
    BlobMissingError,
    Blobs,
    BlobsUnavailableError,
    BlobsUnfitError,
    sha256,
)
from stores.local_blobs import LocalBlobs
from stores.memory_blobs import MemoryBlobs
from stores.redis_blobs import RedisBlobs, blob_key
from stores.redis_connection import connect_redis
from stores.s3_blobs import S3Blobs, S3Client
from stores.settings_errors import explain
from tests.stores.hashes import hashes_here

CONTENT = bytes(range(256)) * 4000
PREFIX = "everloop/"


@dataclass(frozen=True)
class Bench:
    """A store, and a way to damage the content of one of its blobs behind its back."""

    blobs: Blobs
    damage: Callable[[str], Awaitable[None]]


@pytest.fixture(scope="session")
def s3_endpoint() -> Generator[str]:
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=free_port(), verbose=False)
    server.start()
    own = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str) -> str:
    """A bucket of its own."""
    name = f"blobs-{uuid4()}"
    boto3.client("s3", endpoint_url=s3_endpoint).create_bucket(Bucket=name)
    return name


def _turned(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def _memory() -> Bench:
    blobs = MemoryBlobs()

    async def damage(key: str) -> None:
        blobs._sealed[key] = _turned(blobs._sealed[key])

    return Bench(blobs, damage)


def _local(directory: Path) -> Bench:
    directory.mkdir()
    (directory / PROBE_KEY).touch()  # otherwise nothing counts as missing

    async def damage(key: str) -> None:
        path = directory / key
        path.write_bytes(_turned(path.read_bytes()))

    return Bench(LocalBlobs(directory), damage)


def _redis(redis: Redis) -> Bench:
    async def damage(key: str) -> None:
        await redis.setrange(blob_key(key), 3, "damaged")

    return Bench(RedisBlobs(redis), damage)


def _s3(endpoint: str, bucket: str) -> Bench:
    async def damage(key: str) -> None:
        client = cast("Callable[..., S3Client]", boto3.client)("s3", endpoint_url=endpoint)
        found = client.get_object(Bucket=bucket, Key=PREFIX + key)
        turned = _turned(found["Body"].read())
        checksum = base64.b64encode(hashlib.sha256(turned).digest()).decode()
        client.put_object(
            Bucket=bucket,
            Key=PREFIX + key,
            Body=turned,
            ChecksumSHA256=checksum,
            Metadata=found["Metadata"],
        )

    return Bench(S3Blobs(bucket, endpoint=endpoint, prefix=PREFIX), damage)


@pytest.fixture(params=["memory", "local", "redis", "s3"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Bench]:
    made = {
        "memory": _memory,
        "local": lambda: _local(tmp_path / "blobs"),
        "redis": lambda: _redis(request.getfixturevalue("redis")),
        "s3": lambda: _s3(request.getfixturevalue("s3_endpoint"), request.getfixturevalue("bucket")),
    }[str(request.param)]()
    yield made
    if isinstance(made.blobs, S3Blobs | LocalBlobs):
        made.blobs.close()


@pytest.fixture
def blobs(bench: Bench) -> Blobs:
    return bench.blobs


def new_key() -> str:
    """A key that no other test uses."""
    return f"payloads/task%2F{uuid4()}/content"


@pytest.mark.parametrize("content", [b"", b"x", CONTENT], ids=["empty", "short", "1 MB"])
async def test_returns_what_was_put(blobs: Blobs, content: bytes) -> None:
    """Content comes back byte for byte, whatever its length and its bytes are."""
    key = new_key()
    await blobs.put(key, content)
    assert await blobs.get(key) == content


async def test_second_put_of_the_same_content_changes_nothing(blobs: Blobs) -> None:
    """A put that is repeated, as after a crash, leaves the blob as it is."""
    key = new_key()
    await blobs.put(key, CONTENT)
    await blobs.put(key, CONTENT)
    assert await blobs.get(key) == CONTENT


async def test_missing_blob_is_told_by_key_alone(blobs: Blobs) -> None:
    """A blob that is not there raises BlobMissingError that names the key, not the place: clients read it."""
    key = new_key()
    with pytest.raises(BlobMissingError) as raised:
        await blobs.get(key)
    assert key in str(raised.value)
    assert blobs.place not in str(raised.value)


async def test_deleted_blob_is_missing_and_can_be_put_again(blobs: Blobs) -> None:
    """Delete removes a blob, a second delete is harmless, and the next put brings the blob back."""
    key = new_key()
    await blobs.put(key, CONTENT)
    await blobs.delete(key)
    await blobs.delete(key)
    with pytest.raises(BlobMissingError):
        await blobs.get(key)
    await blobs.put(key, CONTENT)
    assert await blobs.get(key) == CONTENT


async def test_damaged_blob_is_never_returned(bench: Bench) -> None:
    """Content whose sha256 is another than the one stored raises BlobCorruptError with the key alone."""
    key = new_key()
    await bench.blobs.put(key, CONTENT)
    await bench.damage(key)
    with pytest.raises(BlobCorruptError) as raised:
        await bench.blobs.get(key)
    assert key in str(raised.value)
    assert bench.blobs.place not in str(raised.value)


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a/../../up", "a//b", "a/", ".unfinished/x", "a\nb", "a" * 201]
)
async def test_no_key_leads_out_of_the_store(blobs: Blobs, key: str) -> None:
    """Put, get and delete refuse whatever is not a plain relative key."""
    for call in (blobs.put(key, b""), blobs.get(key), blobs.delete(key)):
        with pytest.raises(BlobKeyError):
            await call


async def test_reader_never_sees_half_a_blob(blobs: Blobs) -> None:
    """While a blob is put, a reader finds all of it or nothing; two writers at once do each other no harm."""
    key = new_key()
    writer_count = 1 if isinstance(blobs, S3Blobs) else 2  # moto, unlike S3, stumbles over two
    writers = asyncio.gather(*(blobs.put(key, CONTENT) for _ in range(writer_count)))
    while not writers.done():
        with contextlib.suppress(BlobMissingError):
            assert await blobs.get(key) == CONTENT
        await asyncio.sleep(0)  # the store in memory never waits
    await writers
    assert await blobs.get(key) == CONTENT


@pytest.mark.parametrize("bench", ["local", "redis", "s3"], indirect=True)
async def test_loop_reads_no_content(blobs: Blobs) -> None:
    """The thread of the event loop never computes a checksum, whichever store it is."""
    key = new_key()
    with hashes_here() as found:
        await blobs.put(key, CONTENT)
        await blobs.get(key)
        assert not found
        sha256(CONTENT)
    assert found  # so that the check can fail


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


async def test_store_that_is_away_is_not_a_missing_blob(s3_endpoint: str) -> None:
    """No server, no bucket and no Redis are failures to try again, for reads and for writes."""
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


async def test_missing_bucket_is_said_at_start(own_redis: Redis, s3_endpoint: str) -> None:
    """A bucket that does not exist stops a process with one line that names it and the variable."""
    settings = BlobSettings(blobs="s3", s3_bucket=f"blobs-{uuid4()}", s3_endpoint=s3_endpoint)
    with pytest.raises(BlobsUnfitError, match="EVERLOOP_S3_BUCKET") as raised:
        async with opened_blobs(settings, own_redis):
            pass
    assert settings.s3_bucket in str(raised.value)


async def test_unusable_directory_is_said_at_start(own_redis: Redis, tmp_path: Path) -> None:
    """A directory that cannot be written to stops a process with one line that names it."""
    (tmp_path / "file").touch()
    settings = BlobSettings(blob_directory=tmp_path / "file" / "blobs")
    with pytest.raises(BlobsUnfitError, match="file/blobs"):
        async with opened_blobs(settings, own_redis):
            pass


@pytest.mark.parametrize("kind", ["local", "redis", "s3"])
async def test_settings_choose_the_store(
    own_redis: Redis, s3_endpoint: str, bucket: str, tmp_path: Path, kind: str
) -> None:
    """Each value of EVERLOOP_BLOBS opens a store that works."""
    of_s3 = {"s3_bucket": bucket, "s3_endpoint": s3_endpoint} if kind == "s3" else {}
    settings = BlobSettings.model_validate({"blobs": kind, "blob_directory": tmp_path, **of_s3})
    async with opened_blobs(settings, own_redis) as blobs:
        key = new_key()
        await blobs.put(key, CONTENT)
        assert await blobs.get(key) == CONTENT


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"blobs": "s3"}, "EVERLOOP_S3_BUCKET"),
        ({"s3_bucket": "bucket"}, "EVERLOOP_S3_BUCKET"),
        ({"blobs": "s3", "s3_bucket": "bucket", "s3_endpoint": "host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"blobs": "redis", "s3_endpoint": "http://host:9000"}, "EVERLOOP_S3_ENDPOINT"),
        ({"s3_prefix": "everloop/"}, "EVERLOOP_S3_PREFIX"),
        ({"blobs": "tape"}, "EVERLOOP_BLOBS"),
        ({"blob_ttl_days": 0}, "EVERLOOP_BLOB_TTL_DAYS"),
        ({"blob_ttl_days": 10**10}, "EVERLOOP_BLOB_TTL_DAYS"),
    ],
)
def test_wrong_settings_name_the_variable(settings: dict[str, object], variable: str) -> None:
    """What does not fit together is explained in one line that begins with the variable."""
    with pytest.raises(ValidationError) as raised:
        BlobSettings.model_validate(settings)
    assert explain(raised.value).startswith(variable)
