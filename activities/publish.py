"""Publishes what the workflow itself has to say."""

from collections.abc import Sequence

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.artifact_endings import ArtifactEndings
from everloop.activities.task_events import publish_events
from everloop.runtime.blobs import BlobsUnavailableError
from everloop.stores.artifacts.interface import Artifacts
from everloop.stores.secrets import Secrets
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.calls import PublishInput, SaveContextInput, SaveContextResult
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged
from everloop.workflows.contract.failures import FILES_UNAVAILABLE
from everloop.workflows.contract.ports import ContextPort, PublishPort
from everloop.workflows.contract.tasks import TaskRef, TaskState

TRIES_TO_REMEMBER = 10
"""After so many attempts, about a minute, the end of the task is told without its conversation being kept."""

_log = structlog.get_logger()


class ViewPublisher(PublishPort):
    """Writes to the views and streams that gateways read.

    When a task ends, its artifacts are closed first, because nobody listens after the last status; its
    secrets are forgotten afterwards.
    """

    def __init__(
        self, views: TaskViews, secrets: Secrets, artifacts: Artifacts, context: ContextPort | None = None
    ) -> None:
        self._views = views
        self._context = context
        self._secrets = secrets
        self._endings = ArtifactEndings(artifacts, views)

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        if call.opening:
            await self._views.create(call.opening)
        remembered = await self._remember(call.remember)
        end = _last_state(call.events)
        if end:
            await self._end_artifacts(call.task, end)
        await publish_events(self._views, call.task, call.events)
        if end:
            await self._secrets.forget(call.task.task_id)
        return remembered

    async def _remember(self, said: SaveContextInput | None) -> SaveContextResult | None:
        if not said or not self._context:
            return None
        try:
            return await self._context.save_context(said)
        except ApplicationError:
            raise
        except Exception as error:
            if activity.info().attempt < TRIES_TO_REMEMBER:
                raise
            _log.warning("conversation not kept", error_type=type(error).__name__)
            return None

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
