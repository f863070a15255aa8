"""Artifacts: the outputs of tasks, kept by context.

What can be done to one is in `everloop.stores.artifacts.changes`, why it is refused in
`everloop.stores.artifacts.errors`; both are to be had from here. Large parts live in a blob store, whose
errors (`everloop.runtime.blobs`) come through.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
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
    PartCountError,
    PartIndexError,
    RowInvalidError,
    RowSchemaError,
)
from everloop.stores.artifacts.rules import part_of
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


class Artifacts(ABC):
    """Artifacts by context and id. Another context's artifact is simply not there.

    `context_id` is the key of a context, `names.context_key`. An artifact is kept for a time to live after
    its last change. Every change is one atomic step.
    """

    @abstractmethod
    async def apply(
        self,
        context_id: str,
        artifact_id: str,
        change: Change,
        *,
        operation_id: str = "",
        announcement: Announcement | None = None,
    ) -> StoredArtifact:
        """Change an artifact and return it as it is then.

        An operation whose `operation_id` the artifact has seen changes nothing and announces nothing.

        Raises:
            ArtifactError: see there.
            BlobError, RedisError: a store is away or has lost something. Whether the artifact has changed is
                not known; the same `operation_id` makes it safe to try again.
        """

    @abstractmethod
    async def get_artifact(self, context_id: str, artifact_id: str) -> StoredArtifact:
        """Return an artifact without its content.

        Raises:
            ArtifactMissingError: there is none.
        """

    @abstractmethod
    def read_part(
        self, context_id: str, artifact_id: str, index: int = 0, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the content of a part from byte `start` to `end` (exclusive; None: what is there now).

        Pieces have at most a few MiB. Each was checked before it is yielded: what blobs hold against its
        sha256, what is kept inline against its CRC-32.

        Raises:
            ArtifactMissingError: there is no such artifact.
            PartIndexError: it has no such part.
            ArtifactReplacedError: it was replaced after a piece of it was yielded.
            BlobMissingError, BlobCorruptError: the content is lost.
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
