"""The end of a task for the artifacts that nobody has completed."""

from contextlib import suppress

from stores.artifacts import ArtifactClosedError, ArtifactMissingError, Artifacts, Complete, Fail
from stores.published_artifacts import PublishedArtifacts
from stores.task_views import TaskViews
from workflows.contract.artifacts import ArtifactStatus
from workflows.contract.events import FINAL_ATTEMPT
from workflows.contract.names import context_key
from workflows.contract.tasks import TaskRef, TaskState

_AFTER_ALL_CALLS = FINAL_ATTEMPT
"""The position of what is told here. No transcript gets so long: it comes after every reply and result."""


class ArtifactEndings:
    """Completes the artifacts of a task that completed, and fails those of any other."""

    def __init__(self, artifacts: Artifacts, views: TaskViews) -> None:
        self._artifacts = artifacts
        self._views = views

    async def end(self, task: TaskRef, state: TaskState) -> None:
        """Close what the task has left open, and tell subscribers. Repeating it is safe.

        Raises:
            BlobsUnavailableError, RedisError: a store is away; some may be closed already.
        """
        change = Complete() if state is TaskState.COMPLETED else Fail()
        context = context_key(task.owner, task.context_id)
        published = PublishedArtifacts(self._artifacts, task, _AFTER_ALL_CALLS, self._views)
        for artifact in await self._artifacts.list_artifacts(context, task.task_id):
            if artifact.status is ArtifactStatus.BUILDING and not artifact.is_input:
                # Somebody else may have closed or deleted it since it was listed.
                with suppress(ArtifactClosedError, ArtifactMissingError):
                    await published.apply(context, artifact.artifact_id, change)
