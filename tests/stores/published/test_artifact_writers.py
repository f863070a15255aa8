"""Several who write one artifact, and those who do it again: subscribers see what the store holds."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from everloop.runtime.redis import connect_redis
from everloop.stores.artifacts.interface import (
    AddParts,
    Announcement,
    Append,
    ArtifactError,
    ArtifactOvertakenError,
    Change,
    Complete,
    Fail,
    NewPart,
)
from everloop.stores.artifacts.published import PublishedArtifacts
from everloop.stores.artifacts.redis import RedisArtifacts
from everloop.stores.blobs.local import LocalBlobs
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.messages import DataPart, TextPart
from tests.stores.examples import new_id
from tests.stores.published.artifact_desk import ID, Desk, create, text
from tests.support.memory.artifacts import MemoryArtifacts


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_repeated_operation_tells_nothing(desk: Desk) -> None:
    """Also when another attempt repeats it, and one that goes on from there."""
    await desk.apply(create(text("a")))
    await desk.apply(Append(b"b"), operation_id="call")
    await desk.apply(Append(b"b"), operation_id="call")
    desk.retry()
    await desk.apply(Append(b"b"), operation_id="call")
    await desk.apply(Append(b"c"))

    assert [c.part for c in await desk.told()] == [TextPart(text=t) for t in "abc"]
    await desk.assert_shown_as_stored()


async def test_an_attempt_that_writes_the_same_again_replaces(desk: Desk) -> None:
    """What an earlier attempt at the call left is overwritten, in the store and in the view."""
    await desk.apply(create(text("half")), Append(b" of it"))
    desk.retry()
    await desk.apply(create(text("ha")))
    assert await desk.shown() == (TextPart(text="ha"),)

    await desk.apply(Append(b"lf"), Complete())

    assert await desk.shown() == (TextPart(text="half"),)
    await desk.assert_shown_as_stored()


async def test_an_attempt_that_begins_with_all_of_it_may_go_on(desk: Desk) -> None:
    """What is shown as complete is not, any more."""
    await desk.apply(create(text("a"), complete=True))
    desk.retry()
    await desk.apply(create(text("a")))
    await desk.assert_shown_as_stored()

    await desk.apply(Append(b"b"))

    await desk.assert_shown_as_stored()


async def test_an_operation_that_somebody_else_did_first_tells_nothing(desk: Desk) -> None:
    """The store asks what would be told of it, and then finds it done; what follows is told as it is."""

    class Racing(MemoryArtifacts):
        async def apply(
            self,
            context_id: str,
            artifact_id: str,
            change: Change,
            *,
            operation_id: str = "",
            announcement: Announcement | None = None,
        ) -> StoredArtifact:
            if operation_id and announcement:
                before = await self.get_artifact(context_id, artifact_id)
                (part,) = before.parts
                planned = {"version": before.version + 1, "parts": (part.model_copy(update={"size": 2}),)}
                announcement.events_of(before, before.model_copy(update=planned))
                await super().apply(context_id, artifact_id, change, operation_id=operation_id)
            return await super().apply(
                context_id, artifact_id, change, operation_id=operation_id, announcement=announcement
            )

    desk = Desk(Racing(desk.views), desk.views)
    await desk.apply(create(text("a")))
    await desk.apply(Append(b"b"), operation_id="call")
    await desk.apply(Append(b"c"))

    await desk.assert_shown_as_stored()


async def test_a_view_that_knows_nothing_of_an_artifact_gets_all_of_it(desk: Desk) -> None:
    """It was lost, or the artifact is one of another task in the context."""
    await desk.apply(create(text("a"), NewPart("data", b"1")))
    desk.task = desk.task.model_copy(update={"task_id": new_id()})
    desk.next_call()
    await desk.apply(AddParts((text("b"),)))

    assert await desk.shown() == (TextPart(text="a"), DataPart(data=1), TextPart(text="b"))


async def test_the_order_of_two_writers_is_that_of_the_store(desk: Desk) -> None:
    """A call whose result comes earlier may write later; the last one to write is shown."""
    early = desk.writer
    late = desk.next_call()
    await late.apply(desk.context, ID, create(text("late")))
    await early.apply(desk.context, ID, create(text("early")))
    assert await desk.shown() == (TextPart(text="early"),)

    await late.apply(desk.context, ID, Append(b" and late"))

    assert await desk.shown() == (TextPart(text="early and late"),)


async def test_writers_side_by_side_are_shown_in_the_order_of_the_store(
    redis_url: str, tmp_path: Path
) -> None:
    """Each looks again where another one came first; subscribers see every piece once."""
    with closing(LocalBlobs(tmp_path)) as blobs:
        async with connect_redis(redis_url) as redis:
            views = RedisTaskViews(redis)
            desk = Desk(RedisArtifacts(redis, blobs, views), views)
            await desk.apply(create(text("")))
            writers = [desk.next_call() for _ in range(5)]

            async def write(name: str, writer: PublishedArtifacts) -> None:
                for number in range(10):
                    await writer.apply(desk.context, ID, Append(f"{name}{number} ".encode()))

            async with asyncio.TaskGroup() as group:
                for name, writer in zip("abcde", writers, strict=True):
                    group.create_task(write(name, writer))

            await desk.assert_shown_as_stored()
            (shown,) = await desk.shown()
            assert isinstance(shown, TextPart)
            assert sorted(shown.text.split()) == sorted(f"{name}{n}" for name in "abcde" for n in range(10))


async def test_a_writer_notices_that_somebody_else_took_over(desk: Desk) -> None:
    """Nothing of a lost attempt gets into what the next one writes, not even its failure."""
    await desk.apply(create(text("a")), operation_id="first-1")
    lost, _ = desk.writer, desk.retry()
    await desk.apply(create(text("b")), operation_id="second-1")

    for change in (Append(b"a"), Fail(), Complete()):
        with pytest.raises(ArtifactOvertakenError, match="by somebody else"):
            await lost.apply(desk.context, ID, change, operation_id="first-2", follows="first-")
    await desk.apply(Append(b"b"), operation_id="second-2", follows="second-")

    assert await desk.shown() == (TextPart(text="bb"),)
    stored = await desk.artifacts.get_artifact(desk.context, ID)
    assert stored.status is ArtifactStatus.BUILDING


async def test_an_artifact_made_again_after_its_deletion_is_shown(desk: Desk) -> None:
    """Its version begins at one again; its drafts do not."""
    await desk.apply(create(text("a")), Append(b"b"))
    await desk.writer.delete_artifact(desk.context, ID)
    await desk.apply(create(text("c"), complete=True))

    await desk.assert_shown_as_stored()


async def test_a_change_that_is_refused_tells_nothing(desk: Desk) -> None:
    """And does not disturb what follows."""
    await desk.apply(create(NewPart("data", b"1")))
    with pytest.raises(ArtifactError):
        await desk.apply(Append(b"2"))
    await desk.apply(AddParts((text("b"),)))

    assert [c.part for c in await desk.told()] == [DataPart(data=1), TextPart(text="b")]
