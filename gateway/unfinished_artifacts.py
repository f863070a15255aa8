"""Artifacts that a task left unfinished when it ended behind its workflow's back."""

import structlog

from everloop.gateway.errors import STORE_FAILURES
from everloop.runtime.blobs import BlobError
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.artifacts.interface import ArtifactError, Artifacts, Fail
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.names import child_task_id, context_key
from everloop.workflows.contract.tasks import TaskView

_log = structlog.get_logger()


class UnfinishedArtifacts:
    """Lets artifacts fail that nobody will complete."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def fail(self, view: TaskView) -> None:
        """Fail what a task, or a sub-agent of it, is still building; repeating it changes nothing.

        Its subscribers learn it from the status that ends the task. Where the store does not answer, the
        artifacts stay as they are until their time to live is over: the end of the task does not wait for it.
        """
        context_id = context_key(view.owner, view.context_id)
        try:
            for artifact in await self._artifacts.list_artifacts(context_id):
                if artifact.status is ArtifactStatus.BUILDING and _is_of(artifact, view.task_id):
                    await self._fail(artifact)
        except (BlobError, *STORE_FAILURES) as error:
            _log.warning("artifacts stay unfinished", **task_fields(view), error=type(error).__name__)

    async def _fail(self, artifact: StoredArtifact) -> None:
        try:
            await self._artifacts.apply(artifact.context_id, artifact.artifact_id, Fail())
        except ArtifactError as error:  # it was completed, or removed, meanwhile
            _log.debug("artifact not failed", artifact_id=artifact.artifact_id, error=str(error))


def _is_of(artifact: StoredArtifact, task_id: str) -> bool:
    return artifact.task_id == task_id or artifact.task_id.startswith(child_task_id(task_id, ""))
