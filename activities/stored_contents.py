"""What the artifact store holds of the artifacts that a reply writes."""

from everloop.activities.artifact_stream import ShownContent
from everloop.stores.artifacts.interface import ArtifactMissingError, Artifacts
from everloop.stores.artifacts.shown import SHOWN_BYTES, read_contents, shown_form, shown_indexes
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskRef


class StoredContents:
    """The artifacts of the context of a task, in the form in which views show them."""

    def __init__(self, artifacts: Artifacts, task: TaskRef) -> None:
        self._artifacts = artifacts
        self._context = context_key(task.owner, task.context_id)

    async def find(self, artifact_id: str) -> ShownContent | None:
        """Return an artifact, whatever it is; None if there is none."""
        artifact = await self._artifact(artifact_id)
        return await self._shown(artifact) if artifact else None

    async def find_extensible(self, artifact_id: str, size: int) -> ShownContent | None:
        """Return an artifact that takes more, and of which a view still shows all with so many bytes more."""
        artifact = await self._artifact(artifact_id)
        return await self._shown(artifact) if artifact and _can_grow(artifact, size) else None

    async def _artifact(self, artifact_id: str) -> StoredArtifact | None:
        try:
            return await self._artifacts.get_artifact(self._context, artifact_id)
        except ArtifactMissingError:
            return None

    async def _shown(self, artifact: StoredArtifact) -> ShownContent:
        contents = await read_contents(self._artifacts, artifact, shown_indexes(artifact))
        return ShownContent(
            artifact.artifact_id,
            shown_form(artifact, contents),
            artifact.name,
            artifact.description,
            complete=artifact.status is ArtifactStatus.COMPLETE,
        )


def _can_grow(artifact: StoredArtifact, size: int) -> bool:
    indexes = shown_indexes(artifact)
    shown = sum(part.size for part in artifact.parts if part.index in indexes)
    are_texts_shown = all(part.index in indexes for part in artifact.parts if part.kind == "text")
    return artifact.status is ArtifactStatus.BUILDING and are_texts_shown and shown + size <= SHOWN_BYTES
