"""Who reads an artifact while others change it gets right bytes or a clear error."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError
from everloop.stores.artifacts.changes import Append, Change, Complete, Create, NewPart, Replace
from everloop.stores.artifacts.errors import ArtifactMissingError, ArtifactReplacedError
from everloop.stores.artifacts.record import ArtifactAddress
from everloop.workflows.contract.artifacts import StoredArtifact
from tests.stores.artifacts.artifact_rig import SEGMENT, WITH_BLOBS, ArtifactRig


def content_of(size: int) -> bytes:
    """Bytes all pieces of which differ."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


async def apply(rig: ArtifactRig, change: Change) -> StoredArtifact:
    return await rig.artifacts.apply(rig.context_id, "a", change)


async def create(rig: ArtifactRig, *contents: bytes) -> None:
    await apply(rig, Create("task", tuple(NewPart("file", content) for content in contents)))


async def read_while(
    pieces: AsyncIterator[bytes], change: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """Read on after each piece when the artifact has changed."""
    async for piece in pieces:
        yield piece
        await change()


async def test_reader_sees_what_was_there_when_it_began(artifact_rig: ArtifactRig) -> None:
    """What is appended while somebody reads is not read, and moves nothing under the reader's eyes."""
    rig, content = artifact_rig, content_of(2 * SEGMENT + 150)
    await create(rig, content)

    async def append() -> None:
        await apply(rig, Append(b"x" * 170))

    pieces = rig.artifacts.read_part(rig.context_id, "a")
    found = [piece async for piece in read_while(pieces, append)]
    assert b"".join(found) == content
    await apply(rig, Complete())
    rest = b"x" * 170 * len(found)
    assert await rig.content("a") == content + rest


@WITH_BLOBS
@pytest.mark.parametrize("change", ["replace", "override", "recreate", "delete"])
async def test_reader_of_what_is_replaced_is_told(artifact_rig: ArtifactRig, change: str) -> None:
    """A reader that was given a piece never gets one of other content behind it: it fails by that name."""
    rig = artifact_rig
    other = (NewPart("file", b"x" * 5 * SEGMENT),)
    await create(rig, content_of(3 * SEGMENT))

    async def put_other() -> None:
        if change == "replace":
            await apply(rig, Replace(0, other[0]))
        if change in {"recreate", "delete"}:
            await rig.artifacts.delete_artifact(rig.context_id, "a")
        if change in {"recreate", "override"}:
            await apply(rig, Create("task", other, override=change == "override"))

    pieces = rig.artifacts.read_part(rig.context_id, "a")
    with pytest.raises(ArtifactMissingError if change == "delete" else ArtifactReplacedError):
        [piece async for piece in read_while(pieces, put_other)]
    if change != "delete":
        assert await rig.content("a") == b"x" * 5 * SEGMENT


@WITH_BLOBS
async def test_damaged_blob_is_told(artifact_rig: ArtifactRig) -> None:
    """Of a part with a damaged segment the others are read, and then comes a clear error of its checksum."""
    rig, content = artifact_rig, content_of(3 * SEGMENT)
    await create(rig, content, b"0" * 150)
    assert rig.blob_rig
    keys = (await rig.record("a")).blob_keys()
    for key in (keys[1], keys[-1]):
        await rig.blob_rig.damage(key, "content")
    pieces = rig.artifacts.read_part(rig.context_id, "a")
    assert await anext(pieces) == content[:SEGMENT]
    with pytest.raises(BlobCorruptError, match="sha256"):
        await anext(pieces)
    with pytest.raises(BlobCorruptError):  # put anew it would get a new checksum, which would hide the damage
        await apply(rig, Append(b"1" * 300))


async def test_lost_blob_is_told(rig: ArtifactRig) -> None:
    """A segment that is gone though the artifact did not change is missing, also for a writer."""
    await create(rig, b"0" * 150)
    await rig.blobs.delete((await rig.record("a")).blob_keys()[0])
    with pytest.raises(BlobMissingError):
        await rig.content("a")
    with pytest.raises(BlobMissingError):
        await apply(rig, Append(b"1" * 300))


async def test_damaged_tail_is_told(rig: ArtifactRig, own_redis: Redis) -> None:
    """What Redis keeps inline is checked too: other bytes are damage, none are a loss."""
    await create(rig, b"0" * 80)
    tail = ArtifactAddress(rig.context_id, "a").tail_key(0)
    await own_redis.setrange(tail, 7, "damage")
    with pytest.raises(BlobCorruptError, match="CRC-32"):
        await rig.content("a")
    with pytest.raises(BlobCorruptError):
        await apply(rig, Append(b"1" * 50))
    await own_redis.delete(tail)
    with pytest.raises(BlobMissingError):
        await rig.content("a")
