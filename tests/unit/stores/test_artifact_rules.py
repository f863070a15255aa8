"""What a change makes of an artifact, and where its content goes."""

from datetime import UTC, datetime, timedelta

import pytest

from everloop.stores.artifacts.changes import attempt_prefix
from everloop.stores.artifacts.errors import MAX_PARTS, ArtifactOvertakenError, PartCountError
from everloop.stores.artifacts.interface import (
    AddParts,
    Append,
    ArtifactNameError,
    Change,
    Complete,
    Create,
    NewPart,
    Replace,
)
from everloop.stores.artifacts.layout import Sizes
from everloop.stores.artifacts.record import ArtifactAddress, PartContent, Segment
from everloop.stores.artifacts.rules import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_OPERATIONS,
    Changed,
    OperationContext,
    Write,
    change_artifact,
)
from everloop.workflows.contract.artifacts import StoredArtifact

AT = datetime(2026, 11, 21, tzinfo=UTC)


def changed(
    before: StoredArtifact | None, change: Change, operation_id: str = "", minutes: int = 0
) -> Changed:
    at = AT + timedelta(minutes=minutes)
    result = change_artifact(before, change, OperationContext("context", "a", at, operation_id))
    assert result
    return result


def created(*contents: bytes, override: bool = False, before: StoredArtifact | None = None) -> Changed:
    parts = tuple(NewPart("file", content) for content in contents)
    return changed(before, Create("task", parts, override=override))


def test_last_operations_are_remembered() -> None:
    """The log holds the newest operations, with their times; an operation that it forgot can be repeated."""
    artifact = created(b"").artifact
    for number in range(MAX_OPERATIONS):
        artifact = changed(artifact, Append(b"x"), str(number), minutes=number).artifact
    assert [operation.id for operation in artifact.operations] == [str(n) for n in range(MAX_OPERATIONS)]
    assert artifact.operations[-1].at == AT + timedelta(minutes=MAX_OPERATIONS - 1)
    assert change_artifact(artifact, Append(b"x"), OperationContext("context", "a", AT, "0")) is None
    artifact = changed(artifact, Append(b"x")).artifact
    assert changed(artifact, Append(b"x"), "0").artifact.version == artifact.version + 1


def test_times_tell_creation_change_and_completion() -> None:
    """The time of creation stays, that of the last change moves, that of completion is set at the end."""
    artifact = created(b"").artifact
    assert (artifact.created_at, artifact.updated_at, artifact.completed_at) == (AT, AT, None)
    later = AT + timedelta(minutes=5)
    ended = changed(artifact, Complete(), minutes=5).artifact
    assert (ended.created_at, ended.updated_at, ended.completed_at) == (AT, later, later)


WRITES: list[tuple[Change, tuple[Write, ...]]] = [
    (Append(b"x"), (Write(1, b"x"),)),
    (Append(b"x", index=0), (Write(0, b"x"),)),
    (Append(b""), ()),
    (Append(b"x", parts=(NewPart("text", b"y"),)), (Write(1, b"x"), Write(2, b"y", True))),
    (Replace(0, NewPart("text", b"x")), (Write(0, b"x", is_new=True),)),
    (AddParts((NewPart("text", b"x"), NewPart("text"))), (Write(2, b"x", True), Write(3, b"", True))),
    (Complete(), ()),
]


@pytest.mark.parametrize(("change", "writes"), WRITES)
def test_only_what_changes_is_written(change: Change, writes: tuple[Write, ...]) -> None:
    """A change writes to the parts that it names, and keeps all other content."""
    result = changed(created(b"0", b"1").artifact, change)
    assert (result.writes, result.is_new) == (writes, False)


ADDING: dict[str, Change] = {
    "create": Create("task", (NewPart("text"),) * (MAX_PARTS + 1), override=True),
    "add": AddParts((NewPart("text"),) * MAX_PARTS),
    "append": Append(b"x", parts=(NewPart("text"),) * MAX_PARTS),
}


@pytest.mark.parametrize("change", ADDING.values(), ids=ADDING)
def test_an_artifact_has_only_so_many_parts(change: Change) -> None:
    """One part more is refused; as many as there may be are not."""
    with pytest.raises(PartCountError, match=f"{MAX_PARTS + 1} parts: expected at most {MAX_PARTS}"):
        changed(created(b"0").artifact, change)
    most = changed(created(b"0").artifact, AddParts((NewPart("text"),) * (MAX_PARTS - 1))).artifact
    assert len(most.parts) == MAX_PARTS
    assert changed(most, Append(b"x")).artifact.version == most.version + 1


def test_a_later_attempt_at_a_call_is_not_disturbed_by_an_earlier_one() -> None:
    """Whatever the earlier one still wants to do; other calls, and the same attempt again, are free to."""
    early, late, other = (
        attempt_prefix(call, AT + timedelta(microseconds=at)) for call, at in (("c", 0), ("c", 1), ("d", 0))
    )
    artifact = changed(None, Create("task", (NewPart("text", b"x"),)), f"{late}1").artifact
    create = Create("task", (NewPart("text", b"y"),), override=True)
    for change in (create, Append(b"x"), Complete()):
        with pytest.raises(ArtifactOvertakenError):
            changed(artifact, change, f"{early}1")
        for attempt in (late, other, ""):
            assert changed(artifact, change, f"{attempt}2").artifact.version == artifact.version + 1


def test_override_keeps_no_content() -> None:
    """An artifact that overrides another keeps its log, by which repeated operations are known, alone."""
    before = changed(None, Create("task", (NewPart("text", b"x"),)), "first").artifact
    result = created(b"y", override=True, before=before)
    assert result.is_new
    assert [operation.id for operation in result.artifact.operations] == ["first", ""]
    assert result.artifact.last_chunk_index == -1


WRONG_NAMES: list[tuple[Change, str]] = [
    (
        Create("task", (NewPart("file", media_type="text/html\r\nX-Evil: 1"),)),
        "media type .* is no media type",
    ),
    (Create("task", (NewPart("text", media_type="markdown"),)), "media type .* give a type and a subtype"),
    (Create("task", (NewPart("file", filename="../a"),)), "file name .* is a path"),
    (Create("task", (NewPart("file", filename="a\0"),)), "file name .* has control characters"),
    (Create("task", (NewPart("file", filename="\ud800"),)), "file name .* has control characters"),
    (Create("task", (NewPart("file", filename="a" * 5000),)), "file name .* may have 255 bytes"),
    (Create("task", (NewPart("file", url="javascript:alert(1)"),)), "url .* give one with http"),
    (Create("task", (NewPart("file", url="https://me:secret@there/"),)), "url .* leave them out"),
    (Create("task", (), name="a" * (MAX_NAME + 1)), "^name .* has 1001 characters; it may have 1000$"),
    (Create("task", (), name="\udfff"), "^name .* surrogate"),
    (Create("task", (), description="a" * (MAX_DESCRIPTION + 1)), "^description .* it may have 10000$"),
    (Create("task", (), description="\ud800"), "^description .* surrogate"),
    (AddParts((NewPart("text", filename="a/b"),)), "file name .* is a path"),
    (Append(b"", parts=(NewPart("text", filename="a/b"),)), "file name .* is a path"),
    (Replace(0, NewPart("text", filename="a/b")), "file name .* is a path"),
]


@pytest.mark.parametrize(("change", "words"), WRONG_NAMES)
def test_a_name_that_is_none_is_refused(change: Change, words: str) -> None:
    """Whatever an agent calls things reaches clients: the rules are those for what clients send."""
    before = None if isinstance(change, Create) else created(b"0").artifact

    with pytest.raises(ArtifactNameError, match=words):
        change_artifact(before, change, OperationContext("context", "a", AT))


def test_names_up_to_their_limits_are_taken() -> None:
    """Also in other scripts, with spaces, and with parameters of a media type."""
    part = NewPart("file", media_type="text/plain; charset=utf-8", filename="Größe 👩\u200d🚀.txt")
    create = Create("task", (part,), name="é" * MAX_NAME, description="a\n" * (MAX_DESCRIPTION // 2))

    artifact = changed(None, create).artifact

    assert (artifact.name, artifact.description) == (create.name, create.description)
    assert (artifact.parts[0].media_type, artifact.parts[0].filename) == (part.media_type, part.filename)


def content(segments: int, last: int, tail: int) -> PartContent:
    """A part of full segments of 100 bytes, a last one, and a tail."""
    sizes = [100] * segments + ([last] if last else [])
    made = tuple(Segment(name=str(number), size=size) for number, size in enumerate(sizes))
    return PartContent(generation="g", segments=made, tail=tail)


FLUSHES: list[tuple[PartContent, int, bool, bool]] = [
    # content, bytes appended, whether the artifact is closed: whether the tail goes to segments
    (content(0, 0, 0), 20, False, False),
    (content(0, 0, 0), 21, False, True),
    (content(0, 0, 15), 6, False, True),
    (content(0, 0, 15), 5, True, False),
    (content(0, 30, 0), 29, False, False),
    (content(0, 30, 0), 30, False, True),
    (content(0, 30, 10), 0, True, True),
    (content(0, 30, 0), 0, True, False),
    (content(0, 90, 0), 9, False, False),
    (content(0, 90, 0), 10, False, True),
    (content(1, 0, 0), 99, False, False),
    (content(1, 0, 0), 100, False, True),
    (content(3, 60, 0), 39, False, False),
    (content(3, 60, 20), 20, False, True),
]


@pytest.mark.parametrize(("before", "added", "is_closing", "expected"), FLUSHES)
def test_tail_is_flushed_when_it_is_worth_it(
    before: PartContent, added: int, *, is_closing: bool, expected: bool
) -> None:
    """A tail moves when it is too long for Redis, as long as the segments, fills one, or is the last."""
    assert Sizes(inline=20, segment=100).must_flush(before, added, is_closing=is_closing) is expected


@pytest.mark.parametrize(
    ("size", "is_closing", "segments", "tail"),
    [
        (60, False, [60], 0),
        (100, False, [100], 0),
        (130, False, [100], 30),
        (130, True, [100, 30], 0),
        (200, True, [100, 100], 0),
        (0, True, [], 0),
    ],
)
def test_content_is_cut_into_full_segments(
    size: int, segments: list[int], tail: int, *, is_closing: bool
) -> None:
    """All segments but the last are full; the rest waits in the tail unless nothing follows."""
    pieces, rest = Sizes(inline=20, segment=100).cut(bytes(size), is_closing=is_closing)
    assert ([len(piece) for piece in pieces], len(rest)) == (segments, tail)


def test_no_two_artifacts_share_a_key() -> None:
    """Ids and contexts that look like parts of keys lead to keys of their own."""
    pairs = [
        ("o:c", "a"),
        ("o:c", "a:0"),
        ("o:c:a", "0"),
        ("o:c%3Aa", "0"),
        ("o", "c:a"),
        ("o:c a", "0"),
        ("o:c%20a", "0"),
        ("o:c", "%61"),
        ("o:c", "A"),
    ]
    addresses = [ArtifactAddress(context_id, artifact_id) for context_id, artifact_id in pairs]
    keys = [
        key
        for address in addresses
        for key in (address.record_key, address.tail_key(0), address.blob_key("name"))
    ]
    assert len(set(keys)) == 3 * len(pairs)
