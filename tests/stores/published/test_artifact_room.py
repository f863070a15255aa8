"""Artifacts of a task that has put out more than its view has room for."""

import pytest
from redis.asyncio import Redis

from everloop.stores.artifacts.changes import Append, Complete, Create, NewPart, Replace
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.artifacts.store import Artifacts
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.messages import FilePart, Part, StoredPart, TextPart
from everloop.workflows.contract.tasks import TaskRef
from tests.stores.examples import new_id, submitted
from tests.support.memory.blobs import MemoryBlobs

ROOM = 300_000
TEXT = b"x" * 80_000


class Gallery:
    """A task with room for three such texts, and what its tools put out."""

    def __init__(self, views: TaskViews, artifacts: Artifacts) -> None:
        self.views, self._artifacts = views, artifacts
        self._task = submitted()
        self._calls = 0
        self._context = new_id()

    async def begin(self) -> None:
        await self.views.create(self._task)
        self.next_call()

    def next_call(self) -> None:
        """Let another process write, which remembers nothing."""
        self._calls += 2
        task = TaskRef(
            task_id=self._task.task_id, run_id="run", context_id=self._context, owner="o", agent_id="a"
        )
        self._writer = ArtifactPublisher(self._artifacts, task, self._calls, self.views)

    async def write(self, artifact_id: str, *changes: Create | Append | Replace | Complete) -> None:
        for change in changes:
            await self._writer.apply(self._context, artifact_id, change)

    async def shown(self, artifact_id: str) -> tuple[Part, ...]:
        found = await self.views.artifact(self._task.task_id, artifact_id)
        assert found
        return found.artifact.parts

    async def size(self) -> int:
        return await self.views.size(self._task.task_id)


@pytest.fixture
async def gallery(redis: Redis) -> Gallery:
    views = TaskViews(redis, max_bytes=ROOM)
    gallery = Gallery(views, Artifacts(redis, MemoryBlobs(), views))
    await gallery.begin()
    return gallery


def create(content: bytes) -> Create:
    return Create("task", (NewPart("text", content),), "Log", complete=False, override=True)


def link(artifact_id: str, size: int | None = None) -> FilePart:
    return FilePart(media_type="text/plain", size=size, stored=StoredPart(artifact_id=artifact_id, index=0))


async def test_what_has_no_room_is_a_link(gallery: Gallery) -> None:
    """What is shown stays as it is, and so does what is small enough; the task never gets larger."""
    for number in range(20):
        await gallery.write(f"a{number}", create(TEXT), Complete())
        gallery.next_call()

    assert [await gallery.shown(f"a{number}") for number in range(3)] == [(TextPart(text=TEXT.decode()),)] * 3
    for number in range(3, 20):
        assert await gallery.shown(f"a{number}") == (link(f"a{number}", len(TEXT)),)
    assert await gallery.size() <= ROOM
    await gallery.write("small", create(b"note"), Complete())
    assert await gallery.shown("small") == (TextPart(text="note"),)


@pytest.mark.parametrize("by_others", [False, True])
async def test_what_outgrows_the_room_becomes_a_link(gallery: Gallery, *, by_others: bool) -> None:
    """Whoever appends; the artifacts before it are not touched, and it is shown again when it is short."""
    await gallery.write("first", create(TEXT), Complete())
    await gallery.write("grows", create(TEXT))
    for _ in range(3):
        if by_others:
            gallery.next_call()
        await gallery.write("grows", Append(TEXT))

    assert await gallery.shown("grows") == (link("grows"),)
    assert await gallery.shown("first") == (TextPart(text=TEXT.decode()),)
    gallery.next_call()
    await gallery.write("grows", Replace(0, NewPart("text", b"short")))
    assert await gallery.shown("grows") == (TextPart(text="short"),)
    assert await gallery.size() <= ROOM
