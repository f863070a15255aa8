"""Artifacts: the outputs of tasks, kept by context.

What can be done to one is in `everloop.stores.artifacts.changes`, why it is refused in
`everloop.stores.artifacts.errors`, how files, data and datasets are handled in
`everloop.stores.artifacts.typed`; changes and errors are to be had from here. Large parts live in a blob
store, whose errors (`everloop.runtime.blobs`) come through.
"""

from abc import abstractmethod
from datetime import UTC, datetime, timedelta

from everloop.runtime.blobs import LinkTerms
from everloop.stores.artifacts.changes import (
    AddParts,
    Announcement,
    Append,
    Change,
    Complete,
    Create,
    Fail,
    NewPart,
    Replace,
)
from everloop.stores.artifacts.errors import (
    ArtifactClosedError,
    ArtifactError,
    ArtifactExistsError,
    ArtifactIdError,
    ArtifactKindError,
    ArtifactMissingError,
    ArtifactNameError,
    ArtifactOvertakenError,
    ArtifactReplacedError,
    ChunkIndexError,
    PartCountError,
    PartIndexError,
    RowInvalidError,
    RowSchemaError,
)
from everloop.stores.artifacts.rules import part_of
from everloop.stores.artifacts.typed import TypedArtifacts
from everloop.workflows.contract.artifacts import StoredArtifact

__all__ = [
    "ARTIFACT_TTL",
    "AddParts",
    "Announcement",
    "Append",
    "ArtifactClosedError",
    "ArtifactError",
    "ArtifactExistsError",
    "ArtifactIdError",
    "ArtifactKindError",
    "ArtifactMissingError",
    "ArtifactNameError",
    "ArtifactOvertakenError",
    "ArtifactReplacedError",
    "Artifacts",
    "Change",
    "ChunkIndexError",
    "Complete",
    "Create",
    "Fail",
    "NewPart",
    "PartCountError",
    "PartIndexError",
    "Replace",
    "RowInvalidError",
    "RowSchemaError",
    "now",
]

ARTIFACT_TTL = timedelta(days=30)
"""How long an artifact is kept after its last change."""


def now() -> datetime:
    """Return the time by the clock of this machine."""
    return datetime.now(UTC)


class Artifacts(TypedArtifacts):
    """Artifacts by context and id. Another context's artifact is simply not there.

    `context_id` is the key of a context, `names.context_key`. An artifact is kept for a time to live after
    its last change. Every change is one atomic step.
    """

    @abstractmethod
    async def list_artifacts(self, context_id: str, task_id: str | None = None) -> list[StoredArtifact]:
        """Return the artifacts of a context, or of one task in it, oldest first."""

    @abstractmethod
    async def delete_artifact(self, context_id: str, artifact_id: str) -> None:
        """Remove an artifact with all of its content; nothing happens if there is none."""

    async def link(self, context_id: str, artifact_id: str, index: int, terms: LinkTerms) -> str | None:
        """Return an address at which clients fetch a part from the blob store itself; None: there is none.

        Only a part that is whole, and too large to be kept inline, has one.

        Raises:
            ArtifactMissingError: there is no such artifact.
            PartIndexError: it has no such part.
        """
        part_of(await self.get_artifact(context_id, artifact_id), index)
        return None
