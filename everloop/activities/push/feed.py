"""The next push notification of a client."""

import asyncio
from dataclasses import dataclass

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.temporal.describe import is_not_found
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.rendering import with_artifacts
from everloop.stores.lifetimes import MAX_TASK_BYTES
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract.calls import TASK_UNREADABLE
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged, TaskEvent
from everloop.workflows.contract.tasks import Artifact, TaskView

# Views of tasks from their workflows, in case the store has lost them.

RPC_TIMEOUT = 5.0


class TaskWorkflows:
    """Queries workflows for the views of tasks. A view holds at most `max_bytes` of a task's output."""

    def __init__(self, client: Client, artifacts: Artifacts, max_bytes: int = MAX_TASK_BYTES) -> None:
        self._client = client
        self._artifacts = artifacts
        self._max_bytes = max_bytes

    async def view(self, task_id: str) -> TaskView | None:
        """Return the complete view of a task, or None if there is no such workflow.

        Raises:
            ApplicationError: `TaskUnreadable`.
        """
        handle = self._client.get_workflow_handle(task_id)
        try:
            async with asyncio.timeout(RPC_TIMEOUT):
                view = await handle.query("view", result_type=TaskView)
            return await with_artifacts(view, self._artifacts, self._max_bytes)
        except RPCError as error:
            if is_not_found(error):
                return None
            raise _unreadable(error) from None
        except (TimeoutError, WorkflowQueryFailedError, BlobsUnavailableError, ValueError) as error:
            # ValueError: the SDK has no name for the status of a paused run.
            raise _unreadable(error) from None


def _unreadable(error: Exception) -> ApplicationError:
    return ApplicationError(f"the task cannot be read now ({type(error).__name__})", type=TASK_UNREADABLE)


Subject = TaskView | StatusChanged | Artifact
"""The subject of a notification: the whole task, a new status, or a completed artifact."""


@dataclass(frozen=True)
class News:
    """The next notification, and the position that the client has acknowledged once it accepts it.

    `name` identifies the notification within its task, and is the same for each look-up.
    """

    position: str
    subject: Subject
    name: str


@dataclass(frozen=True)
class Nothing:
    """There is nothing to send up to this position. `is_over`: nor will there be later."""

    position: str
    is_over: bool


class PushFeed:
    """Reads the stream of a task. A client without a valid position in it gets the whole view.

    A view that is missing or marked as incomplete is rebuilt here, as gateways do on a request. A view
    without its last status is left to gateways (`everloop.gateway.tasks.reconcile`): their sweep repairs it
    and then notifies the deliveries.
    """

    def __init__(self, views: TaskViews, workflows: TaskWorkflows) -> None:
        self._views = views
        self._workflows = workflows

    async def next(self, task_id: str, position: str) -> News | Nothing:
        """Return the next notification after a position. If that is empty, the whole task.

        Raises:
            ApplicationError: `TaskUnreadable`.
        """
        if not (position and await self._views.holds(task_id, position)):
            return await self._complete(task_id, position)
        while page := await self._views.read({task_id: position}, wait=0):
            for streamed in page:
                if streamed.follows_loss:
                    return await self._complete(task_id, position)
                position = streamed.position
                if subject := await self._subject(task_id, streamed.event):
                    return News(position, subject, position)
        state = await self._views.state(task_id)
        if state is None:
            return await self._complete(task_id, position)
        return Nothing(position, is_over=state.is_terminal)

    async def _complete(self, task_id: str, position: str) -> News | Nothing:
        """Return the whole task as a notification."""
        snapshot = await self._views.load(task_id)
        is_complete = snapshot and not snapshot.is_incomplete
        if not is_complete and (stored := await self._workflows.view(task_id)):
            await self._views.restore(stored)
            snapshot = await self._views.load(task_id)
        if snapshot is None:
            return Nothing(position, is_over=True)
        view, state = snapshot.view, snapshot.view.status.state
        if snapshot.position == position == START:  # a view without a stream
            return Nothing(snapshot.position, is_over=state.is_terminal)
        return News(snapshot.position, view, f"task {view.run_id} {view.version} {state}")

    async def _subject(self, task_id: str, event: TaskEvent) -> Subject | None:
        from everloop.runtime.protocol.a2a_tasks import is_visible  # noqa: PLC0415 -- A2A's messages take 3 MiB

        match event:
            case StatusChanged():
                return event
            case ArtifactChunk(last_chunk=True):
                found = await self._views.artifact(task_id, event.artifact_id)
                # An artifact that was started again meanwhile is sent when its new content is complete.
                is_sent = found and found.complete and is_visible(found)
                return found if found and is_sent else None
            case _:
                return None
