"""Publishes what the workflow itself has to say."""

from collections.abc import Sequence

from temporalio import activity

from activities.artifact_endings import ArtifactEndings
from stores.artifacts import Artifacts
from stores.secrets import Secrets
from stores.task_views import TaskViews
from workflows.contract.calls import PublishInput
from workflows.contract.events import ArtifactChunk, StatusChanged
from workflows.contract.ports import PublishPort
from workflows.contract.tasks import TaskState


class ViewPublisher(PublishPort):
    """Writes to the views and streams that gateways read.

    When a task ends, its artifacts are closed first, because nobody listens after the last status; its
    secrets are forgotten afterwards.
    """

    def __init__(self, views: TaskViews, secrets: Secrets, artifacts: Artifacts) -> None:
        self._views = views
        self._secrets = secrets
        self._endings = ArtifactEndings(artifacts, views)

    @activity.defn
    async def publish(self, call: PublishInput) -> None:
        end = _last_state(call.events)
        if end:
            await self._endings.end(call.task, end)
        await self._views.publish(call.task.task_id, call.task.run_id, call.events)
        if end:
            await self._secrets.forget(call.task.task_id)


def _last_state(events: Sequence[StatusChanged | ArtifactChunk]) -> TaskState | None:
    """Return the state in which these events leave the task for good, if they do."""
    states = [event.state for event in events if isinstance(event, StatusChanged)]
    return next((state for state in states if state.is_terminal), None)
