"""Artifacts of a task that has put out more than its view has room for."""

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.changes import Append, Complete, NewPart, Replace
from everloop.stores.artifacts.store import Artifacts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.messages import FilePart, StoredPart, TextPart
from tests.stores.examples import submitted
from tests.stores.published.artifact_harness import Harness, create
from tests.support.memory.blobs import MemoryBlobs

ROOM = 300_000
TEXT = b"x" * 80_000


@pytest.fixture
async def harness(redis: Redis) -> Harness:
    """A task with room for three such texts, and what its tools put out."""
    views = TaskViews(redis, max_bytes=ROOM)
    harness = Harness(Artifacts(redis, MemoryBlobs(), views), views)
    await views.create(submitted(harness.task.task_id))
    return harness


def link(artifact_id: str, size: int | None = None) -> FilePart:
    return FilePart(media_type="text/plain", size=size, stored=StoredPart(artifact_id=artifact_id, index=0))


async def test_what_has_no_room_is_a_link(harness: Harness) -> None:
    """What is shown stays as it is, and so does what is small enough; the task never gets larger."""
    for number in range(20):
        await harness.apply(create(NewPart("text", TEXT)), Complete(), artifact_id=f"a{number}")
        harness.next_call()

    assert [await harness.shown(f"a{number}") for number in range(3)] == [(TextPart(text=TEXT.decode()),)] * 3
    for number in range(3, 20):
        assert await harness.shown(f"a{number}") == (link(f"a{number}", len(TEXT)),)
    assert await harness.views.size(harness.task.task_id) <= ROOM
    await harness.apply(create(NewPart("text", b"note")), Complete(), artifact_id="small")
    assert await harness.shown("small") == (TextPart(text="note"),)


@pytest.mark.parametrize("by_others", [False, True])
async def test_what_outgrows_the_room_becomes_a_link(harness: Harness, *, by_others: bool) -> None:
    """Whoever appends; the artifacts before it are not touched, and it is shown again when it is short."""
    await harness.apply(create(NewPart("text", TEXT)), Complete(), artifact_id="first")
    await harness.apply(create(NewPart("text", TEXT)), artifact_id="grows")
    for _ in range(3):
        if by_others:
            harness.next_call()
        await harness.apply(Append(TEXT), artifact_id="grows")

    assert await harness.shown("grows") == (link("grows"),)
    assert await harness.shown("first") == (TextPart(text=TEXT.decode()),)
    harness.next_call()
    await harness.apply(Replace(0, NewPart("text", b"short")), artifact_id="grows")
    assert await harness.shown("grows") == (TextPart(text="short"),)
    assert await harness.views.size(harness.task.task_id) <= ROOM
