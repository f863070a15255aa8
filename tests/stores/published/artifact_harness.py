"""A store, a view, and an artifact's writers."""

from everloop.stores.artifacts.changes import Change, Create, NewPart
from everloop.stores.artifacts.publisher import ArtifactPublisher
from everloop.stores.artifacts.rendering import render_artifact
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import ArtifactChunk
from everloop.workflows.contract.messages import Part
from everloop.workflows.contract.tasks import TaskRef
from tests.stores.examples import new_id, stream_of
from tests.stores.published.artifact_histories import with_lists_joined
from tests.support.stores import new_artifacts

ID = "log"


class Harness:
    """A store and a view, and writers that make one call after the other."""

    def __init__(self, views: TaskViews) -> None:
        self.views, self.artifacts = views, new_artifacts(views)
        self.task = TaskRef(task_id=new_id(), run_id="run", context_id="c", owner="o", agent_id="a")
        self.context = new_id()
        self.reply = -1
        self.next_call()

    def next_call(self) -> ArtifactPublisher:
        self.reply += 2
        return self.retry()

    def beside(self) -> ArtifactPublisher:
        """Return the writer of another call of the same reply."""
        return ArtifactPublisher(self.artifacts, self.task, self.reply + 1, self.views)

    def retry(self) -> ArtifactPublisher:
        self.writer = self.beside()
        return self.writer

    async def apply(
        self, *changes: Change, artifact_id: str = ID, operation_id: str = "", follows: str = ""
    ) -> None:
        for change in changes:
            await self.writer.apply(
                self.context, artifact_id, change, operation_id=operation_id, follows=follows
            )

    async def published(self) -> list[ArtifactChunk]:
        """Return the events that the fold accepted."""
        events = await stream_of(self.views, self.task.task_id)
        return [event for event in events if isinstance(event, ArtifactChunk)]

    async def draft(self, *chunks: ArtifactChunk) -> None:
        await self.views.publish(self.task.task_id, self.task.run_id, chunks)

    async def shown(self, artifact_id: str = ID) -> tuple[Part, ...]:
        found = await self.views.artifact(self.task.task_id, artifact_id)
        assert found
        return found.parts

    async def is_stored(self) -> bool:
        return bool(await self.artifacts.list_artifacts(self.context))

    async def assert_shown_as_stored(self) -> None:
        """Check that the view shows the store's content and its end, complete or failed."""
        stored = await self.artifacts.get_artifact(self.context, ID)
        expected = await render_artifact(self.artifacts, stored)
        found = await self.views.artifact(self.task.task_id, ID)
        assert found
        assert with_lists_joined(found.parts) == with_lists_joined(expected.parts)
        assert (found.complete, found.failed) == (expected.complete, expected.failed)
        assert found.name == expected.name


def text(content: str, media_type: str = "") -> NewPart:
    return NewPart("text", content.encode(), media_type)


def create(*parts: NewPart, complete: bool = False) -> Create:
    return Create("task", parts, "Log", complete=complete, override=True)


def data(content: bytes) -> NewPart:
    return NewPart("data", content)
