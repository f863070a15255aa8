"""Publishes what the workflow itself has to say."""

from collections.abc import Sequence

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.artifact_endings import ArtifactEndings
from stores.artifacts import Artifacts
from stores.blobs import BlobsUnavailableError
from stores.secrets import Secrets
from stores.task_views import TaskViews
from workflows.contract.calls import PublishInput
from workflows.contract.events import ArtifactChunk, StatusChanged
from workflows.contract.failures import FILES_UNAVAILABLE
from workflows.contract.ports import PublishPort
from workflows.contract.tasks import TaskRef, TaskState

_log = structlog.get_logger()


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
        if call.opening:
            await self._views.create(call.opening)
        end = _last_state(call.events)
        if end:
            await self._end_artifacts(call.task, end)
        await self._views.publish(call.task.task_id, call.task.run_id, call.events)
        if end:
            await self._secrets.forget(call.task.task_id)

    async def _end_artifacts(self, task: TaskRef, end: TaskState) -> None:
        try:
            await self._endings.end(task, end)
        except BlobsUnavailableError as error:
            _log.warning("artifacts not closed", error_type=type(error).__name__)
            # The error's own text would tell the history of the workflow where the store is.
            problem = "the artifacts of the task cannot be completed now: their store is away"
            raise ApplicationError(problem, type=FILES_UNAVAILABLE) from None


def _last_state(events: Sequence[StatusChanged | ArtifactChunk]) -> TaskState | None:
    """Return the state in which these events leave the task for good, if they do."""
    states = [event.state for event in events if isinstance(event, StatusChanged)]
    return next((state for state in states if state.is_terminal), None)
