"""Changes of an artifact, and the location of its content."""

from datetime import UTC, datetime, timedelta

import pytest

from everloop.stores.artifacts.artifact_errors import (
    MAX_PARTS,
    ArtifactNameError,
    ArtifactOvertakenError,
    PartCountError,
)
from everloop.stores.artifacts.changes import (
    AddParts,
    Append,
    Change,
    Complete,
    Create,
    NewPart,
    Replace,
    attempt_prefix,
)
from everloop.stores.artifacts.record import ArtifactAddress
from everloop.stores.artifacts.rules import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_OPERATIONS,
    Changed,
    OperationContext,
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
    """The log holds the newest operations, with their times; one that was dropped can be repeated."""
    artifact = created(b"").artifact
    for number in range(MAX_OPERATIONS):
        artifact = changed(artifact, Append(b"x"), str(number), minutes=number).artifact
    assert [operation.id for operation in artifact.operations] == [str(n) for n in range(MAX_OPERATIONS)]
    assert artifact.operations[-1].at == AT + timedelta(minutes=MAX_OPERATIONS - 1)
    assert change_artifact(artifact, Append(b"x"), OperationContext("context", "a", AT, "0")) is None
    artifact = changed(artifact, Append(b"x")).artifact
    assert changed(artifact, Append(b"x"), "0").artifact.version == artifact.version + 1


ADDING: dict[str, Change] = {
    "create": Create("task", (NewPart("text"),) * (MAX_PARTS + 1), override=True),
    "add": AddParts((NewPart("text"),) * MAX_PARTS),
    "append": Append(b"x", parts=(NewPart("text"),) * MAX_PARTS),
}


@pytest.mark.parametrize("change", ADDING.values(), ids=ADDING)
def test_an_artifact_has_only_so_many_parts(change: Change) -> None:
    """One part over the limit is refused."""
    with pytest.raises(PartCountError, match=f"{MAX_PARTS + 1} parts: expected at most {MAX_PARTS}"):
        changed(created(b"0").artifact, change)
    most = changed(created(b"0").artifact, AddParts((NewPart("text"),) * (MAX_PARTS - 1))).artifact
    assert len(most.parts) == MAX_PARTS
    assert changed(most, Append(b"x")).artifact.version == most.version + 1


def test_a_later_attempt_at_a_call_is_not_disturbed_by_an_earlier_one() -> None:
    """Each change by the earlier one is refused; those of other calls, and of the later one, are not."""
    early, late, other = (attempt_prefix(call, number) for call, number in (("c", 9), ("c", 10), ("d", 9)))
    artifact = changed(None, Create("task", (NewPart("text", b"x"),)), f"{late}1").artifact
    create = Create("task", (NewPart("text", b"y"),), override=True)
    for change in (create, Append(b"x"), Complete()):
        with pytest.raises(ArtifactOvertakenError):
            changed(artifact, change, f"{early}1")
        for attempt in (late, other, ""):
            assert changed(artifact, change, f"{attempt}2").artifact.version == artifact.version + 1


WRONG_NAMES: list[tuple[Change, str]] = [
    (
        Create("task", (NewPart("file", media_type="text/html\r\nX-Evil: 1"),)),
        "media type .* is no media type",
    ),
    (Create("task", (NewPart("file", filename="../a"),)), "file name .* is a path"),
    (Create("task", (NewPart("file", filename="a\0"),)), "file name .* has control characters"),
    (Create("task", (NewPart("file", filename="a" * 5000),)), "file name .* may have 255 bytes"),
    (Create("task", (NewPart("file", url="javascript:alert(1)"),)), "url .* give one with http"),
    (Create("task", (NewPart("file", url="https://me:secret@there/"),)), "url .* leave them out"),
    (Create("task", (), name="a" * (MAX_NAME + 1)), "^name .* has 1001 characters; it may have 1000$"),
    (Create("task", (), description="a" * (MAX_DESCRIPTION + 1)), "^description .* it may have 10000$"),
    (Create("task", (), description="\ud800"), "^description .* surrogate"),
    (AddParts((NewPart("text", filename="a/b"),)), "file name .* is a path"),
    (Replace(0, NewPart("text", filename="a/b")), "file name .* is a path"),
]


@pytest.mark.parametrize(("change", "words"), WRONG_NAMES)
def test_a_name_that_is_none_is_refused(change: Change, words: str) -> None:
    """Names of an agent reach clients: the rules are those for the clients' own."""
    before = None if isinstance(change, Create) else created(b"0").artifact

    with pytest.raises(ArtifactNameError, match=words):
        change_artifact(before, change, OperationContext("context", "a", AT))


def test_no_two_artifacts_share_a_key() -> None:
    """Ids and contexts that look like parts of keys have keys of their own."""
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
