"""Several writers of one artifact, and retries: subscribers see the store's content."""

import asyncio

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.artifact_errors import ArtifactOvertakenError
from everloop.stores.artifacts.changes import AddParts, Append, Change, Complete, Fail, NewPart, Replace
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.artifacts.rendering import render_artifact
from everloop.stores.keys import head_key, log_key, snapshot_key
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.artifacts import ArtifactStatus
from everloop.workflows.contract.messages import DataPart, FilePart, StoredPartRef, TextPart
from tests.stores.examples import new_id, submitted
from tests.stores.published.artifact_harness import ID, Harness, create, text


@pytest.fixture
def harness(redis: Redis) -> Harness:
    return Harness(TaskViews(redis))


async def test_a_repeated_operation_tells_nothing(harness: Harness) -> None:
    """An operation that another attempt, or one after it, repeats publishes nothing."""
    await harness.apply(create(text("a")))
    await harness.apply(Append(b"b"), operation_id="call")
    await harness.apply(Append(b"b"), operation_id="call")
    harness.retry()
    await harness.apply(Append(b"b"), operation_id="call")
    await harness.apply(Append(b"c"))

    assert [c.part for c in await harness.published()] == [TextPart(text=t) for t in "abc"]
    await harness.assert_shown_as_stored()


async def test_a_view_that_knows_nothing_of_an_artifact_gets_all_of_it(harness: Harness) -> None:
    """A view without the artifact, lost or of another task, gets all of it."""
    await harness.apply(create(text("a"), NewPart("data", b"1")))
    harness.task = harness.task.model_copy(update={"task_id": new_id()})
    harness.next_call()
    await harness.apply(AddParts((text("b"),)))

    assert await harness.shown() == (TextPart(text="a"), DataPart(data=1), TextPart(text="b"))


async def test_writers_side_by_side_are_shown_in_the_order_of_the_store(harness: Harness) -> None:
    """Concurrent writers are shown in the store's order, and each piece once."""
    await harness.apply(create(text("")))
    writers = [harness.beside() for _ in range(5)]

    async def write(name: str, writer: ArtifactPublisher) -> None:
        for number in range(10):
            await writer.apply(harness.context, ID, Append(f"{name}{number} ".encode()))

    await asyncio.gather(*map(write, "abcde", writers))

    await harness.assert_shown_as_stored()
    (shown,) = await harness.shown()
    assert isinstance(shown, TextPart)
    assert sorted(shown.text.split()) == sorted(f"{name}{n}" for name in "abcde" for n in range(10))


async def test_a_writer_notices_that_somebody_else_took_over(harness: Harness) -> None:
    """Neither pieces nor failure of an overtaken writer change the next attempt's content."""
    await harness.apply(create(text("a")), operation_id="first-1")
    lost, _ = harness.writer, harness.retry()
    await harness.apply(create(text("b")), operation_id="second-1")

    for change in (Append(b"a"), Fail(), Complete()):
        with pytest.raises(ArtifactOvertakenError, match="by somebody else"):
            await lost.apply(harness.context, ID, change, operation_id="first-2", follows="first-")
    await harness.apply(Append(b"b"), operation_id="second-2", follows="second-")

    assert await harness.shown() == (TextPart(text="bb"),)
    stored = await harness.artifacts.get_artifact(harness.context, ID)
    assert stored.status is ArtifactStatus.BUILDING


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_change_that_was_not_published_is_made_up_for(harness: Harness, *, is_same: bool) -> None:
    """Its writer died: what is appended next, by the same writer or another one, publishes the whole."""
    await harness.apply(create(text("a")))
    await harness.artifacts.apply(harness.context, ID, Append(b"b"))
    if not is_same:
        harness.next_call()

    await harness.apply(Append(b"c"))

    await harness.assert_shown_as_stored()
    await harness.apply(Append(b"d"))
    assert [c.part for c in await harness.published()] == [TextPart(text=t) for t in ("a", "abc", "d")]


async def test_an_artifact_that_was_deleted_begins_again(harness: Harness) -> None:
    """An artifact created after a deletion counts its versions from 1, without the old published content."""
    await harness.apply(create(text("a")), Append(b"b"))
    await harness.artifacts.delete_artifact(harness.context, ID)
    await harness.apply(create(text("c")), Append(b"d"))
    await harness.assert_shown_as_stored()
    for content in ("e", "f"):
        await harness.artifacts.delete_artifact(harness.context, ID)
        await harness.apply(create(text(content), complete=True))
        await harness.assert_shown_as_stored()


CLOSING = [
    Complete(),
    Fail(),
    Append(b"c", last_chunk=True),
    AddParts((text("c", "text/x"),), last_chunk=True),
]


@pytest.mark.parametrize("is_restored", [True, False])
@pytest.mark.parametrize("last", CLOSING, ids=lambda change: type(change).__name__)
async def test_a_view_that_was_lost_is_right_when_the_artifact_is_closed(
    harness: Harness, redis: Redis, last: Change, *, is_restored: bool
) -> None:
    """Chunks that follow a draft of a lost view are dropped until the artifact's end, which restores it."""
    await harness.apply(create(text("a")))
    view = submitted(harness.task.task_id)
    await redis.delete(head_key(view.task_id), snapshot_key(view.task_id), log_key(view.task_id))
    if is_restored:
        stored = await harness.artifacts.get_artifact(harness.context, ID)
        artifact = await render_artifact(harness.artifacts, stored)
        await harness.views.restore(view.model_copy(update={"run_id": "run", "artifacts": (artifact,)}))
    await harness.apply(Append(b"b"))
    found = await harness.views.artifact(view.task_id, ID)
    assert (found and found.parts) == ((TextPart(text="a"),) if is_restored else None)

    await harness.apply(last)

    await harness.assert_shown_as_stored()


# A task whose artifacts exceed its view.

ROOM = 300_000
TEXT = b"x" * 80_000


@pytest.fixture
async def full(redis: Redis) -> Harness:
    """Return a task whose view has room for three such texts, and the artifacts of its tools."""
    harness = Harness(TaskViews(redis, RetentionSettings.model_construct(max_task_bytes=ROOM)))
    await harness.views.create(submitted(harness.task.task_id))
    return harness


def link(artifact_id: str, size: int | None = None) -> FilePart:
    return FilePart(
        media_type="text/plain", size=size, stored=StoredPartRef(artifact_id=artifact_id, index=0)
    )


async def test_what_has_no_room_is_a_link(full: Harness) -> None:
    """Content beyond the view's room is a link. Shown and small content stays, and the task does not grow."""
    for number in range(20):
        await full.apply(create(NewPart("text", TEXT)), Complete(), artifact_id=f"a{number}")
        full.next_call()

    assert [await full.shown(f"a{number}") for number in range(3)] == [(TextPart(text=TEXT.decode()),)] * 3
    for number in range(3, 20):
        assert await full.shown(f"a{number}") == (link(f"a{number}", len(TEXT)),)
    assert await full.views.size(full.task.task_id) <= ROOM
    await full.apply(create(NewPart("text", b"note")), Complete(), artifact_id="small")
    assert await full.shown("small") == (TextPart(text="note"),)


@pytest.mark.parametrize("by_others", [False, True])
async def test_what_outgrows_the_room_becomes_a_link(full: Harness, *, by_others: bool) -> None:
    """An artifact that outgrows the room becomes a link for any writer.

    Earlier ones stay, and it is shown again once it is short.
    """
    await full.apply(create(NewPart("text", TEXT)), Complete(), artifact_id="first")
    await full.apply(create(NewPart("text", TEXT)), artifact_id="grows")
    for _ in range(3):
        if by_others:
            full.next_call()
        await full.apply(Append(TEXT), artifact_id="grows")

    assert await full.shown("grows") == (link("grows"),)
    assert await full.shown("first") == (TextPart(text=TEXT.decode()),)
    full.next_call()
    await full.apply(Replace(0, NewPart("text", b"short")), artifact_id="grows")
    assert await full.shown("grows") == (TextPart(text="short"),)
    assert await full.views.size(full.task.task_id) <= ROOM
