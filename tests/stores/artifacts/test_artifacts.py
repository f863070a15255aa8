"""Guarantees of each artifact store, with each kind of blobs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import JsonValue
from redis.asyncio import Redis

from everloop.runtime.blobs import BlobCorruptError, BlobMissingError, LinkTerms
from everloop.stores.artifacts.artifact_errors import (
    ArtifactClosedError,
    ArtifactError,
    ArtifactExistsError,
    ArtifactIdError,
    ArtifactKindError,
    ArtifactMissingError,
    ArtifactReplacedError,
    PartIndexError,
    RowInvalidError,
    RowSchemaError,
)
from everloop.stores.artifacts.artifact_store import ArtifactSettings, make_artifacts
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    NewPart,
    Replace,
)
from everloop.stores.artifacts.record import ArtifactAddress, ArtifactRecord
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.lifetimes import RetentionSettings
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from tests.stores.artifacts.artifact_rig import (
    EVERYWHERE,
    INLINE,
    SEGMENT,
    TTL,
    WITH_BLOBS,
    ArtifactRig,
    read,
)

SIZES = [0, 1, INLINE, INLINE + 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 50]
WHOLE_NUMBERS: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}}


def content_of(size: int) -> bytes:
    """Return bytes that are not text, all pieces of which differ."""
    return b"\xff" * min(size, 1) + b"".join(number.to_bytes(4, "big") for number in range(size))[: size - 1]


def text(content: bytes = b"text") -> NewPart:
    return NewPart("text", content)


def file(content: bytes) -> NewPart:
    return NewPart("file", content, "application/octet-stream", "x.bin")


async def create(rig: ArtifactRig, *parts: NewPart, artifact_id: str = "a") -> StoredArtifact:
    return await rig.artifacts.apply(rig.context_id, artifact_id, Create(rig.task_id, parts))


async def apply(rig: ArtifactRig, change: Change, operation_id: str = "") -> StoredArtifact:
    return await rig.artifacts.apply(rig.context_id, "a", change, operation_id=operation_id)


@EVERYWHERE
async def test_content_comes_back_byte_for_byte(artifact_rig: ArtifactRig) -> None:
    """A part of any size is read as it was created, completely and in any range."""
    for size in SIZES:
        content, name = content_of(size), f"of {size} bytes"
        made = await create(artifact_rig, file(content), artifact_id=name)
        assert (made.parts[0].size, made.version, made.status) == (size, 1, ArtifactStatus.BUILDING)
        for start, end in [(0, None), (size // 2, None), (INLINE, SEGMENT + 7), (3, 3), (0, size + 9)]:
            pieces = artifact_rig.artifacts.read_part(artifact_rig.context_id, name, start=start, end=end)
            assert b"".join([piece async for piece in pieces]) == content[start:end]


async def test_log_says_what_was_done(artifact_rig: ArtifactRig) -> None:
    """Each change increments the version and is logged with its part, time and name; appends are numbered."""
    await create(artifact_rig, text(), text())
    await apply(artifact_rig, Append(b"x", index=0), "first")
    await apply(artifact_rig, Replace(1, text()))
    artifact = await apply(artifact_rig, AddParts((text(),), last_chunk=True))
    log = [(operation.kind, operation.index, operation.id) for operation in artifact.operations]
    assert log == [
        ("create", 0, ""),
        ("append", 0, "first"),
        ("replace", 1, ""),
        ("append", 2, ""),
        ("complete", 0, ""),
    ]
    assert (artifact.version, artifact.last_chunk_index) == (4, 1)
    assert await artifact_rig.artifacts.get_artifact(artifact_rig.context_id, "a") == artifact


REFUSED: list[tuple[Change, type[ArtifactError]]] = [
    (Create("task", (text(),)), ArtifactExistsError),
    (Append(b"x", index=-2), PartIndexError),
    (Append(b"x", index=1), ArtifactKindError),
    (Append(b"x", index=0, rows=1), ArtifactKindError),
    (Append(b'{"n": "one"}\n', index=2, rows=1), RowInvalidError),
    (Append(b'{"n": 1}\n{"n": 1.5}\n', index=2, rows=2), RowInvalidError),
    (Append(b'{"n": 1}\n', index=2, rows=2), RowInvalidError),
    (Append(b'{"n": 1}', index=2, rows=1), RowInvalidError),
    (Append(b'["n"]\n', index=2, rows=1), RowInvalidError),
    (Replace(0, NewPart("data", b"{")), ArtifactKindError),
    (AddParts((NewPart("rows", row_schema={"type": "nothing"}),)), RowSchemaError),
]


async def test_refused_change_changes_nothing(artifact_rig: ArtifactRig) -> None:
    """An invalid change is refused by the name of its error, and changes neither artifact nor content."""
    rig = artifact_rig
    rows = NewPart("rows", b'{"n":0}\n', row_schema=WHOLE_NUMBERS)
    before = await create(rig, text(b"0" * 150), NewPart("data", b"1"), rows)
    for change, error in REFUSED:
        with pytest.raises(error):
            await rig.artifacts.apply(rig.context_id, "a", change)
    assert await rig.artifacts.get_artifact(rig.context_id, "a") == before
    contents = [await rig.content("a", index) for index in range(3)]
    assert contents == [b"0" * 150, b"1", b'{"n":0}\n']
    await apply(rig, Complete())
    with pytest.raises(ArtifactClosedError, match="complete"):
        await apply(rig, Append(b"x"))


async def test_list_is_of_a_context_or_a_task(artifact_rig: ArtifactRig) -> None:
    """Artifacts of a context, or of one of its tasks, are listed oldest first."""
    rig, artifacts = artifact_rig, artifact_rig.artifacts
    for artifact_id, task_id in [("b", "one"), ("c", "two"), ("a", "one")]:
        rig.clock.at += timedelta(milliseconds=1)
        await artifacts.apply(rig.context_id, artifact_id, Create(task_id, (text(),)))
    await artifacts.apply(rig.context_id, "b", Append(b"changed later"))

    async def listed(task_id: str | None) -> list[str]:
        return [found.artifact_id for found in await artifacts.list_artifacts(rig.context_id, task_id)]

    assert await listed(None) == ["b", "c", "a"]
    assert await listed("one") == ["b", "a"]
    assert await listed("three") == []


async def test_time_to_live_counts_from_the_last_change(artifact_rig: ArtifactRig) -> None:
    """An artifact exists for its time to live after its last change, and then for no operation."""
    rig, artifacts = artifact_rig, artifact_rig.artifacts
    await create(rig, file(b"0" * 500), file(b"1" * 20))
    rig.clock.at += TTL - timedelta(seconds=1)
    await apply(rig, Append(b"x"))
    rig.clock.at += TTL - timedelta(seconds=1)
    assert await rig.content("a", 1) == b"1" * 20 + b"x"
    rig.clock.at += timedelta(seconds=2)
    for call in (artifacts.get_artifact(rig.context_id, "a"), apply(rig, Append(b"x"))):
        with pytest.raises(ArtifactMissingError):
            await call
    with pytest.raises(ArtifactMissingError):
        await rig.content("a")
    assert await artifacts.list_artifacts(rig.context_id) == []
    made = await create(rig, file(b""))
    await apply(rig, Append(b"new"))
    assert (made.version, await rig.content("a")) == (1, b"new")


UNUSABLE_IDS = ["", ".", "..", "a\n", "\x00", "\x7f", "\x85", "a" * 256, "é" * 128, "\ud800"]


@pytest.mark.parametrize("artifact_id", UNUSABLE_IDS)
async def test_unusable_id_is_refused(artifact_rig: ArtifactRig, artifact_id: str) -> None:
    """An id that is empty, too long, a path step or has control characters raises a ValueError."""
    artifacts, context_id = artifact_rig.artifacts, artifact_rig.context_id
    for call in (
        create(artifact_rig, text(), artifact_id=artifact_id),
        artifacts.get_artifact(context_id, artifact_id),
        artifacts.delete_artifact(context_id, artifact_id),
        read(artifacts, context_id, artifact_id),
    ):
        with pytest.raises(ArtifactIdError, match="1 to 255 bytes"):
            await call


async def test_contexts_are_apart(artifact_rig: ArtifactRig) -> None:
    """The artifact of another context exists for no operation, even of one with a similar id."""
    artifacts, context_id = artifact_rig.artifacts, artifact_rig.context_id
    await create(artifact_rig, file(b"0" * 500))
    for other in (f"{context_id}:a", context_id[:-1], f"{context_id}%3Aa", "", "expiring"):
        for call in (
            artifacts.get_artifact(other, "a"),
            artifacts.apply(other, "a", Append(b"x")),
            read(artifacts, other, "a"),
            artifacts.link(other, "a", 0, LinkTerms("text/plain", "attachment", 60)),
        ):
            with pytest.raises(ArtifactMissingError):
                await call
        await artifacts.delete_artifact(other, "a")
        assert await artifacts.list_artifacts(other) == []
    assert await artifact_rig.content("a") == b"0" * 500


async def test_two_writers_at_once_both_land(artifact_rig: ArtifactRig) -> None:
    """Changes at the same time are made one after the other: each is there, whole."""
    rig = artifact_rig
    await create(rig, text(b""))
    pieces = [bytes([letter]) * 90 for letter in b"abcdefghij"]
    await asyncio.gather(*(apply(rig, Append(piece)) for piece in pieces))
    content = await rig.content("a")
    assert sorted(content[at : at + 90] for at in range(0, len(content), 90)) == pieces
    assert await rig.version() == 1 + len(pieces)


async def test_repeated_operation_at_once_lands_once(artifact_rig: ArtifactRig) -> None:
    """The same operation from two processes is made once, and both get its result."""
    await create(artifact_rig, text(b""))
    results = await asyncio.gather(
        *(apply(artifact_rig, Append(b"x" * 300), operation_id="o") for _ in range(4))
    )
    assert len({result.version for result in results}) == 1
    assert await artifact_rig.content("a") == b"x" * 300


# A reader gets correct bytes or a clear error while the artifact changes.


async def read_while(
    pieces: AsyncIterator[bytes], change: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """Continue reading after each piece, once the artifact has changed."""
    async for piece in pieces:
        yield piece
        await change()


async def test_reader_sees_what_was_there_when_it_began(artifact_rig: ArtifactRig) -> None:
    """A reader gets the artifact as it was at the start; concurrent appends do not move its positions."""
    rig, content = artifact_rig, content_of(2 * SEGMENT + 150)
    await create(rig, file(content))

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
    """A reader never gets a piece of other content after a replacement: it fails by that name."""
    rig = artifact_rig
    other = (file(b"x" * 5 * SEGMENT),)
    await create(rig, file(content_of(3 * SEGMENT)))

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
    """A damaged segment is a clear checksum error; the others are read."""
    rig, content = artifact_rig, content_of(3 * SEGMENT)
    await create(rig, file(content), file(b"0" * 150))
    assert rig.blob_rig
    keys = (await rig.record("a")).blob_keys()
    for key in (keys[1], keys[-1]):
        await rig.blob_rig.damage(key, "content")
    pieces = rig.artifacts.read_part(rig.context_id, "a")
    assert await anext(pieces) == content[:SEGMENT]
    with pytest.raises(BlobCorruptError, match="sha256"):
        await anext(pieces)
    with pytest.raises(BlobCorruptError):  # a second put would make a new checksum, which hides the damage
        await apply(rig, Append(b"1" * 300))


async def test_lost_blob_is_told(rig: ArtifactRig) -> None:
    """A lost segment of an unchanged artifact is missing for readers and writers."""
    await create(rig, file(b"0" * 150))
    await rig.blobs.delete((await rig.record("a")).blob_keys()[0])
    with pytest.raises(BlobMissingError):
        await rig.content("a")
    with pytest.raises(BlobMissingError):
        await apply(rig, Append(b"1" * 300))


async def test_damaged_tail_is_told(rig: ArtifactRig, own_redis: Redis) -> None:
    """Inline content of Redis is checked, too: other bytes are damage, missing ones a loss."""
    await create(rig, file(b"0" * 80))
    tail = ArtifactAddress(rig.context_id, "a").tail_key(0)
    await own_redis.setrange(tail, 7, "damage")
    with pytest.raises(BlobCorruptError, match="CRC-32"):
        await rig.content("a")
    with pytest.raises(BlobCorruptError):
        await apply(rig, Append(b"1" * 50))
    await own_redis.delete(tail)
    with pytest.raises(BlobMissingError):
        await rig.content("a")


@pytest.mark.parametrize(("inline", "days"), [(100_000, 30), (5, 7)])
async def test_settings_reach_the_store(redis: Redis, inline: int, days: int) -> None:
    """Settings limit inline content and the time to live: 100,000 bytes and 30 days by default."""
    settings, retention = (
        ArtifactSettings(artifact_inline_bytes=inline),
        RetentionSettings(artifact_ttl_days=days),
    )
    assert (settings == ArtifactSettings()) is (days == 30)
    artifacts = make_artifacts(settings, redis, RedisBlobs(redis), retention)
    context_id = f"owner:{uuid4()}"
    parts = (NewPart("file", bytes(inline)), NewPart("file", bytes(inline + 1)))
    await artifacts.apply(context_id, "a", Create("task", parts))
    text = str(await redis.get(ArtifactAddress(context_id, "a").record_key))
    record = ArtifactRecord.model_validate_json(text)
    assert [len(content.segments) for content in record.contents] == [0, 1]
    assert (record.expires_at - record.artifact.updated_at).days == days
