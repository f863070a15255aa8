"""Blob stores of each kind for tests, with a way to damage stored blobs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import PROBE_KEY, Blobs
from everloop.stores.blobs.local_blobs import LocalBlobs
from everloop.stores.blobs.redis_blobs import RedisBlobs, blob_key
from everloop.stores.blobs.s3_blobs import S3Blobs
from tests.support.servers.buckets import client_of, new_bucket

PREFIX = "everloop/"

ALL_STORES = ["local", "redis", pytest.param("s3", marks=pytest.mark.slow)]
"""The gate tests guarantees of all stores on the first two, and on S3 those of S3 alone."""

Damaged = Literal["content", "checksum"]


@dataclass(frozen=True)
class BlobRig:
    """A store, and a way to damage a stored blob: its content, or its checksum."""

    blobs: Blobs
    damage: Callable[[str, Damaged], Awaitable[None]]


def new_key() -> str:
    """Return a key of this test alone."""
    return f"payloads/task%2F{uuid4()}/content"


def open_rig(kind: str, request: pytest.FixtureRequest) -> BlobRig:
    """Return a store of this kind, and start its server."""
    if kind == "local":
        return _local(request.getfixturevalue("tmp_path") / "blobs")
    if kind == "redis":
        return _redis(request.getfixturevalue("redis"))
    return _s3(request.getfixturevalue("s3_endpoint"))


def turned(content: bytes, at: int = 0) -> bytes:
    """Return the content with another byte at this position."""
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


def _place(what: Damaged) -> int:
    """Return the position to change in a value that ends with its checksum."""
    return -1 if what == "checksum" else 3


def _local(directory: Path) -> BlobRig:
    directory.mkdir()
    (directory / PROBE_KEY).touch()  # otherwise no blob counts as missing

    async def damage(key: str, what: Damaged) -> None:
        path = directory / key
        path.write_bytes(turned(path.read_bytes(), _place(what)))

    return BlobRig(LocalBlobs(directory), damage)


def _redis(redis: Redis) -> BlobRig:
    async def damage(key: str, what: Damaged) -> None:
        length = await redis.strlen(blob_key(key))
        await redis.setrange(blob_key(key), length - 7 if what == "checksum" else length // 2, "damaged")

    return BlobRig(RedisBlobs(redis), damage)


def _s3(endpoint: str) -> BlobRig:
    bucket, client = new_bucket(endpoint), client_of(endpoint)

    async def damage(key: str, what: Damaged) -> None:
        found = client.get_object(Bucket=bucket, Key=PREFIX + key)
        content, metadata = found["Body"].read(), found["Metadata"]
        if what == "checksum":
            metadata = {"sha256": metadata["sha256"][::-1]}
        else:
            content = turned(content)
        client.put_object(Bucket=bucket, Key=PREFIX + key, Body=content, Metadata=metadata)

    return BlobRig(S3Blobs(bucket, endpoint=endpoint, prefix=PREFIX), damage)
