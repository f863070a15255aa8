"""Every artifact store keeps the same promises: in memory, and in Redis with each kind of blob store."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic import JsonValue

from everloop.stores.artifacts.interface import (
    AddParts,
    Announcement,
    Append,
    ArtifactClosedError,
    ArtifactError,
    ArtifactExistsError,
    ArtifactKindError,
    ArtifactMissingError,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    PartIndexError,
    Replace,
    RowInvalidError,
    RowSchemaError,
)
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import TaskEvent
from tests.stores.artifacts.artifact_benches import INLINE, SEGMENT, TTL, ArtifactBench

SIZES = [0, 1, INLINE, INLINE + 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 50]
WHOLE_NUMBERS: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}}


def content_of(size: int) -> bytes:
    """Bytes that are no text, all pieces of which differ."""
    return b"\xff" * min(size, 1) + b"".join(number.to_bytes(4, "big") for number in range(size))[: size - 1]


def text(content: bytes = b"text") -> NewPart:
    return NewPart("text", content)


def file(content: bytes) -> NewPart:
    return NewPart("file", content, "application/octet-stream", "x.bin")


async def create(bench: ArtifactBench, *parts: NewPart, artifact_id: str = "a") -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, artifact_id, Create(bench.task_id, parts))


async def apply(bench: ArtifactBench, change: Change, operation_id: str = "") -> StoredArtifact:
    return await bench.artifacts.apply(bench.context_id, "a", change, operation_id=operation_id)


@pytest.mark.parametrize("size", SIZES)
async def test_content_comes_back_byte_for_byte(artifact_bench: ArtifactBench, size: int) -> None:
    """Whatever its size, a part is read as it was created, all of it and from any byte to any other."""
    content = content_of(size)
    made = await create(artifact_bench, file(content))
    assert (made.parts[0].size, made.version, made.status) == (size, 1, ArtifactStatus.BUILDING)
    assert await artifact_bench.content("a") == content
    for start, end in [(0, 1), (size // 2, None), (INLINE, SEGMENT + 7), (size, None), (3, 3), (0, size + 9)]:
        pieces = artifact_bench.artifacts.read_part(artifact_bench.context_id, "a", start=start, end=end)
        assert b"".join([piece async for piece in pieces]) == content[start:end]


@pytest.mark.parametrize("piece", [1, 7, INLINE, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 3])
async def test_appended_pieces_come_to_the_whole(artifact_bench: ArtifactBench, piece: int) -> None:
    """However content is cut, it reads the same at every moment, while it moves from inline to blobs."""
    content = content_of(60 if piece == 1 else 4 * SEGMENT)
    await create(artifact_bench, file(b""))
    for start in range(0, len(content), piece):
        is_last = start + piece >= len(content)
        append = Append(content[start : start + piece], last_chunk=is_last)
        await apply(artifact_bench, append)
        assert await artifact_bench.content("a") == content[: start + piece]
    artifact = await artifact_bench.artifacts.get_artifact(artifact_bench.context_id, "a")
    assert artifact.status is ArtifactStatus.COMPLETE
    assert artifact.parts[0].size == len(content)
    assert artifact.completed_at == artifact.updated_at


async def test_parts_are_apart(artifact_bench: ArtifactBench) -> None:
    """Appending to one part, replacing one and adding one leave the others as they are."""
    await create(artifact_bench, file(b"0" * 90), file(b"1" * 500))
    await apply(artifact_bench, Append(b"more" * 30, index=0))
    await apply(artifact_bench, AddParts((file(b"2" * 450), text(b"three"))))
    await apply(artifact_bench, Replace(1, text(b"new")))
    artifact = await apply(artifact_bench, Append(b"!"))
    contents = [await artifact_bench.content("a", index) for index in range(4)]
    assert contents == [b"0" * 90 + b"more" * 30, b"new", b"2" * 450, b"three!"]
    assert [part.size for part in artifact.parts] == [210, 3, 450, 6]
    assert [part.index for part in artifact.parts] == [0, 1, 2, 3]


async def test_log_says_what_was_done(artifact_bench: ArtifactBench) -> None:
    """Each change counts the version up and is logged with its part, time and name; appends are numbered."""
    await create(artifact_bench, text(), text())
    await apply(artifact_bench, Append(b"x", index=0), "first")
    await apply(artifact_bench, Replace(1, text()))
    artifact = await apply(artifact_bench, AddParts((text(),), last_chunk=True))
    log = [(operation.kind, operation.index, operation.id) for operation in artifact.operations]
    assert log == [
        ("create", 0, ""),
        ("append", 0, "first"),
        ("replace", 1, ""),
        ("append", 2, ""),
        ("complete", 0, ""),
    ]
    assert (artifact.version, artifact.last_chunk_index) == (4, 1)
    assert await artifact_bench.artifacts.get_artifact(artifact_bench.context_id, "a") == artifact


REFUSED: list[tuple[Change, type[ArtifactError]]] = [
    (Create("task", (text(),)), ArtifactExistsError),
    (Append(b"x", index=3), PartIndexError),
    (Append(b"x", index=-2), PartIndexError),
    (Replace(3, text()), PartIndexError),
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


@pytest.mark.parametrize(("change", "error"), REFUSED)
async def test_refused_change_changes_nothing(
    artifact_bench: ArtifactBench, change: Change, error: type[ArtifactError]
) -> None:
    """What does not fit is refused by its name, and artifact, content and events stay as they are."""
    rows = NewPart("rows", b'{"n":0}\n', row_schema=WHOLE_NUMBERS)
    before = await create(artifact_bench, text(b"0" * 150), NewPart("data", b"1"), rows)
    context_id = artifact_bench.context_id
    with pytest.raises(error):
        await artifact_bench.artifacts.apply(
            context_id, "a", change, announcement=artifact_bench.announcement()
        )
    assert await artifact_bench.artifacts.get_artifact(context_id, "a") == before
    contents = [await artifact_bench.content("a", index) for index in range(3)]
    assert contents == [b"0" * 150, b"1", b'{"n":0}\n']
    assert await artifact_bench.told() == []


@pytest.mark.parametrize("end", [Complete(), Fail()])
async def test_closed_artifact_takes_no_more(artifact_bench: ArtifactBench, end: Change) -> None:
    """After completion or failure all changes are refused but the same end again, which changes nothing."""
    await create(artifact_bench, file(b"0" * 150))
    await apply(artifact_bench, Append(b"tail"))
    closed = await apply(artifact_bench, end)
    other = Fail() if isinstance(end, Complete) else Complete()
    for change in (Append(b"x"), AddParts((text(),)), Replace(0, text()), other):
        with pytest.raises(ArtifactClosedError, match=closed.status):
            await apply(artifact_bench, change)
    assert await apply(artifact_bench, end) == closed
    assert await artifact_bench.content("a") == b"0" * 150 + b"tail"


async def test_override_begins_anew(artifact_bench: ArtifactBench) -> None:
    """With override, an artifact is another one under the same id; its version goes on counting."""
    await create(artifact_bench, file(b"0" * 900), file(b"1" * 50))
    await apply(artifact_bench, Complete())
    made = await apply(artifact_bench, Create("other", (text(b"new"),), override=True))
    assert (made.version, made.task_id, made.status) == (3, "other", ArtifactStatus.BUILDING)
    await apply(artifact_bench, Append(b"er"))
    assert await artifact_bench.content("a") == b"newer"
    with pytest.raises(PartIndexError):
        await artifact_bench.content("a", 1)


async def test_known_operation_is_not_repeated(artifact_bench: ArtifactBench) -> None:
    """A change of a name that the artifact has seen does nothing and tells nobody, whatever came between."""
    bench, told = artifact_bench, artifact_bench.announcement()
    changes: list[tuple[str, Change]] = [
        ("create", Create(bench.task_id, (text(b"0" * 150),))),
        ("append", Append(b"1" * 300)),
        ("complete", Complete()),
        ("append", Append(b"1" * 300)),
        ("create", Create(bench.task_id, (text(b"0" * 150),))),
    ]
    versions = [
        (
            await bench.artifacts.apply(bench.context_id, "a", change, operation_id=name, announcement=told)
        ).version
        for name, change in changes
    ]
    assert await bench.content("a") == b"0" * 150 + b"1" * 300
    assert versions == [1, 2, 3, 3, 3]
    assert await bench.told() == ["0 → 1", "1 → 2", "2 → 3"]


async def test_events_belong_to_the_change(artifact_bench: ArtifactBench) -> None:
    """A change is told in the same step; if its events cannot be made, nothing has changed."""

    def fail(_before: StoredArtifact | None, _after: StoredArtifact) -> Sequence[TaskEvent]:
        raise LookupError

    bench = artifact_bench
    before = await create(bench, text())
    await bench.artifacts.apply(bench.context_id, "a", Append(b"x"), announcement=bench.announcement())
    announcement = Announcement(bench.task_id, "run", fail)
    with pytest.raises(LookupError):
        await bench.artifacts.apply(bench.context_id, "a", Append(b"y" * 500), announcement=announcement)
    assert await bench.told() == ["1 → 2"]
    assert await bench.content("a") == b"textx"
    assert (await bench.artifacts.get_artifact(bench.context_id, "a")).version == before.version + 1


async def test_list_is_of_a_context_or_a_task(artifact_bench: ArtifactBench) -> None:
    """Artifacts are listed oldest first, those of one task alone if one is named."""
    bench, artifacts = artifact_bench, artifact_bench.artifacts
    for artifact_id, task_id in [("b", "one"), ("c", "two"), ("a", "one")]:
        bench.clock.at += timedelta(milliseconds=1)
        await artifacts.apply(bench.context_id, artifact_id, Create(task_id, (text(),)))
    await artifacts.apply(bench.context_id, "b", Append(b"changed later"))

    async def listed(task_id: str | None) -> list[str]:
        return [found.artifact_id for found in await artifacts.list_artifacts(bench.context_id, task_id)]

    assert await listed(None) == ["b", "c", "a"]
    assert await listed("one") == ["b", "a"]
    assert await listed("three") == []


async def test_deleted_artifact_is_gone(artifact_bench: ArtifactBench) -> None:
    """Delete removes all of an artifact, a second one is harmless, and the id is free again."""
    bench = artifact_bench
    await create(bench, file(b"0" * 500), file(b"1"))
    for _ in range(2):
        await bench.artifacts.delete_artifact(bench.context_id, "a")
        with pytest.raises(ArtifactMissingError, match="'a'"):
            await bench.content("a")
    assert await bench.artifacts.list_artifacts(bench.context_id) == []
    made = await create(bench, file(b""))
    await apply(bench, Append(b"new"))
    assert made.version == 1
    assert await bench.content("a") == b"new"


async def test_time_to_live_counts_from_the_last_change(artifact_bench: ArtifactBench) -> None:
    """An artifact is there for its time to live after its last change, and then not for any operation."""
    bench, artifacts = artifact_bench, artifact_bench.artifacts
    await create(bench, file(b"0" * 500), file(b"1" * 20))
    bench.clock.at += TTL - timedelta(seconds=1)
    await apply(bench, Append(b"x"))
    bench.clock.at += TTL - timedelta(seconds=1)
    assert await bench.content("a", 1) == b"1" * 20 + b"x"
    bench.clock.at += timedelta(seconds=2)
    for call in (artifacts.get_artifact(bench.context_id, "a"), apply(bench, Append(b"x"))):
        with pytest.raises(ArtifactMissingError):
            await call
    with pytest.raises(ArtifactMissingError):
        await bench.content("a")
    assert await artifacts.list_artifacts(bench.context_id) == []
    made = await create(bench, file(b""))
    await apply(bench, Append(b"new"))
    assert (made.version, await bench.content("a")) == (1, b"new")
