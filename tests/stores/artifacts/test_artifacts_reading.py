"""Who reads an artifact while others change it gets right bytes or a clear error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.interface import (
    Append,
    ArtifactMissingError,
    ArtifactReplacedError,
    Change,
    Complete,
    Create,
    NewPart,
    Replace,
)
from everloop.stores.artifacts.record import ArtifactAddress
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifacts.artifact_benches import (
    BLOB_STORES_HERE,
    SEGMENT,
    ArtifactBench,
    Clock,
    redis_artifacts,
)
from tests.stores.blobs.blob_benches import open_bench
from tests.support.memory.blobs import MemoryBlobs

WITH_BLOBS = pytest.mark.parametrize("artifact_bench", BLOB_STORES_HERE, indirect=True)


def content_of(size: int) -> bytes:
    """Bytes all pieces of which differ."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


@pytest.fixture
def bench(redis: Redis, request: pytest.FixtureRequest) -> ArtifactBench:
    """A store whose blobs are in a directory."""
    return redis_artifacts(redis, open_bench("local", request))


async def apply(bench: ArtifactBench, change: Change) -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, "a", change)


async def create(bench: ArtifactBench, *contents: bytes) -> None:
    await apply(bench, Create("task", tuple(NewPart("file", content) for content in contents)))


async def read_while(
    pieces: AsyncIterator[bytes], change: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """Read on after each piece when the artifact has changed."""
    async for piece in pieces:
        yield piece
        await change()


async def test_reader_sees_what_was_there_when_it_began(artifact_bench: ArtifactBench) -> None:
    """What is appended while somebody reads is not read, and moves nothing under the reader's eyes."""
    bench, content = artifact_bench, content_of(2 * SEGMENT + 150)
    await create(bench, content)

    async def append() -> None:
        await apply(bench, Append(b"x" * 170))

    pieces = bench.artifacts.read_part(bench.context_id, "a")
    found = [piece async for piece in read_while(pieces, append)]
    assert b"".join(found) == content
    await apply(bench, Complete())
    rest = b"x" * 170 * len(found)
    assert await bench.content("a") == content + rest


async def test_readers_of_a_growing_file_see_beginnings_of_it(artifact_bench: ArtifactBench) -> None:
    """While a file grows from inline to many blobs, each reader gets as much of it as there was at once."""
    bench, content = artifact_bench, content_of(6 * SEGMENT)
    await create(bench, b"")
    is_done = False

    async def write() -> None:
        nonlocal is_done
        for start in range(0, len(content), 37):
            await apply(bench, Append(content[start : start + 37]))
            await asyncio.sleep(0)  # the store in memory never waits
        await apply(bench, Complete())
        is_done = True

    async def keep_reading() -> int:
        sizes = [0]
        while not is_done:
            size = (await bench.artifacts.get_artifact(bench.context_id, "a")).parts[0].size
            found = await bench.content("a")
            assert found == content[: len(found)]
            assert len(found) >= max(size, sizes[-1])
            sizes.append(len(found))
            await asyncio.sleep(0)
        return len(set(sizes))

    _, *different = await asyncio.gather(write(), keep_reading(), keep_reading())
    assert min(different) > 3
    assert await bench.content("a") == content


@pytest.mark.parametrize("artifact_bench", BLOB_STORES_HERE, indirect=True)
@pytest.mark.parametrize("change", ["replace", "override", "recreate"])
async def test_reader_of_what_is_replaced_is_told(artifact_bench: ArtifactBench, change: str) -> None:
    """A reader that was given a piece never gets one of other content behind it: it fails by that name."""
    bench = artifact_bench
    other = (NewPart("file", b"x" * 5 * SEGMENT),)
    await create(bench, content_of(3 * SEGMENT))

    async def put_other() -> None:
        if change == "replace":
            await apply(bench, Replace(0, other[0]))
        else:
            if change == "recreate":
                await bench.artifacts.delete_artifact(bench.context_id, "a")
            await apply(bench, Create("task", other, override=change == "override"))

    pieces = bench.artifacts.read_part(bench.context_id, "a")
    with pytest.raises(ArtifactReplacedError, match="read it again"):
        [piece async for piece in read_while(pieces, put_other)]
    assert await bench.content("a") == b"x" * 5 * SEGMENT


@WITH_BLOBS
async def test_reader_of_what_is_deleted_is_told(artifact_bench: ArtifactBench) -> None:
    """A reader whose artifact is deleted between two pieces learns that it is missing."""
    bench = artifact_bench
    await create(bench, content_of(3 * SEGMENT))
    pieces = bench.artifacts.read_part(bench.context_id, "a")
    with pytest.raises(ArtifactMissingError):
        [
            piece
            async for piece in read_while(
                pieces, lambda: bench.artifacts.delete_artifact(bench.context_id, "a")
            )
        ]


@WITH_BLOBS
async def test_damaged_blob_is_told(artifact_bench: ArtifactBench) -> None:
    """Of a part with a damaged segment the others are read, and then comes a clear error of its checksum."""
    bench, content = artifact_bench, content_of(3 * SEGMENT)
    await create(bench, content)
    assert bench.blob_bench
    key = (await bench.record("a")).blob_keys()[1]
    await bench.blob_bench.damage(key, "content")
    pieces = bench.artifacts.read_part(bench.context_id, "a")
    assert await anext(pieces) == content[:SEGMENT]
    with pytest.raises(BlobCorruptError, match="sha256"):
        await anext(pieces)


@WITH_BLOBS
async def test_damaged_blob_is_not_put_anew(artifact_bench: ArtifactBench) -> None:
    """Appending to a damaged segment fails by that name: a new checksum would hide the damage."""
    bench = artifact_bench
    await create(bench, b"0" * 150)
    assert bench.blob_bench
    await bench.blob_bench.damage((await bench.record("a")).blob_keys()[0], "content")
    with pytest.raises(BlobCorruptError):
        await apply(bench, Append(b"1" * 300))


async def test_lost_blob_is_told(bench: ArtifactBench) -> None:
    """A segment that is gone though the artifact did not change is missing, also for a writer."""
    await create(bench, b"0" * 150)
    await bench.blobs.delete((await bench.record("a")).blob_keys()[0])
    with pytest.raises(BlobMissingError):
        await bench.content("a")
    with pytest.raises(BlobMissingError):
        await apply(bench, Append(b"1" * 300))


async def test_damaged_tail_is_told(bench: ArtifactBench, redis: Redis) -> None:
    """What Redis keeps inline is checked too: other bytes are damage, none are a loss."""
    await create(bench, b"0" * 80)
    tail = ArtifactAddress(bench.context_id, "a").tail_key(0)
    await redis.setrange(tail, 7, "damage")
    with pytest.raises(BlobCorruptError, match="CRC-32"):
        await bench.content("a")
    with pytest.raises(BlobCorruptError):
        await apply(bench, Append(b"1" * 50))
    await redis.delete(tail)
    with pytest.raises(BlobMissingError):
        await bench.content("a")


class CountingBlobs(MemoryBlobs):
    """Counts what is put."""

    def __init__(self) -> None:
        super().__init__()
        self.put_bytes = 0

    async def put(self, key: str, content: bytes) -> None:
        self.put_bytes += len(content)
        await super().put(key, content)


async def test_there_are_few_blobs(redis: Redis) -> None:
    """Of content appended in small pieces nearly all is put at most twice, in blobs of one size."""
    blobs = CountingBlobs()
    artifacts = RedisArtifacts(redis, blobs, RedisTaskViews(redis), inline_limit=1000, segment=50_000)
    bench = ArtifactBench(artifacts, RedisTaskViews(redis), clock=Clock(), redis=redis)
    content = content_of(520_000)
    await create(bench, b"")
    for start in range(0, len(content), 700):
        await apply(bench, Append(content[start : start + 700]))
    await apply(bench, Complete())
    sizes = [segment.size for segment in (await bench.record("a")).contents[0].segments]
    assert sizes == [50_000] * 10 + [20_000]
    assert blobs.put_bytes < len(content) + 2 * 50_000
    assert await bench.content("a") == content
