"""Tasks that a test writes directly into the store, for many subscribers."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskState, TaskStatus
from tests.gateway.harness import a_view


@dataclass
class FollowedTask:
    """A task without a workflow: only the test publishes its events."""

    id: str
    views: TaskViews
    chunks: int = 0

    async def write(self, text: str) -> None:
        """Append to its answer."""
        chunk = ArtifactChunk(
            artifact_id="response",
            position=0,
            attempt=1,
            index=self.chunks,
            part=TextPart(text=text),
            last_chunk=False,
        )
        self.chunks += 1
        await self.views.publish(self.id, "run", [chunk])

    async def complete(self) -> None:
        """Publish its end."""
        status = StatusChanged(version=2, state=TaskState.COMPLETED, at=datetime.now(UTC))
        await self.views.publish(self.id, "run", [status])


async def working_task(views: TaskViews) -> FollowedTask:
    """Create a task that works."""
    later = datetime.now(UTC) + timedelta(hours=1)  # no sweep misses its workflow before that
    view = a_view(status=TaskStatus(state=TaskState.WORKING, at=later))
    await views.restore(view)
    return FollowedTask(view.task_id, views)
