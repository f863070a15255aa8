"""Tasks that a test plays by itself, straight into the store, for many who follow them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from everloop.gateway.context import ANONYMOUS
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.gateway.harness import AGENT, unique


@dataclass
class FollowedTask:
    """A task without a workflow: nobody but the test says anything of it."""

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
        """Let it end."""
        status = StatusChanged(version=2, state=TaskState.COMPLETED, at=datetime.now(UTC))
        await self.views.publish(self.id, "run", [status])


async def working_task(views: TaskViews) -> FollowedTask:
    """Create a task that works."""
    now = datetime.now(UTC)
    later = now + timedelta(hours=1)  # until then no sweep misses its workflow, and calls it failed
    view = TaskView(
        task_id=unique("followed"),
        context_id=unique("context"),
        owner=ANONYMOUS,
        agent_id=AGENT.id,
        created_at=now,
        run_id="run",
        version=1,
        status=TaskStatus(state=TaskState.WORKING, at=later),
        history=(UserMessage(message_id="m", parts=(TextPart(text="hi"),)),),
    )
    await views.restore(view)
    return FollowedTask(view.task_id, views)
