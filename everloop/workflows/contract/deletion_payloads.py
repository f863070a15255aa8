"""Deletion: inputs and results of its workflow and its activity. They hold ids, no content."""

from abc import ABC, abstractmethod
from enum import StrEnum

from temporalio import activity

from everloop.workflows.contract.payloads import Wire

DELETION_WORKFLOW_TYPE = "Deletion"

NEVER_GONE = "NeverGone"
"""Some data still exist after many deletion attempts. Not retryable."""

OF, REMOVED = "of", "removed"
"""Memo fields of a deletion: its target, and the counts of removed items."""


class DeletionKind(StrEnum):
    """Kinds of things that are deleted together with all their data."""

    TASK = "task"
    CONTEXT = "context"
    ARTIFACT = "artifact"
    OWNER = "owner"


class RemovedCounts(Wire):
    """Counts of removed items: tasks of clients, artifacts, keys of Redis, blobs."""

    tasks: int = 0
    artifacts: int = 0
    keys: int = 0
    blobs: int = 0

    def __add__(self, other: "RemovedCounts") -> "RemovedCounts":
        return RemovedCounts(
            tasks=self.tasks + other.tasks,
            artifacts=self.artifacts + other.artifacts,
            keys=self.keys + other.keys,
            blobs=self.blobs + other.blobs,
        )


class DeletionTarget(Wire):
    """Target of a deletion. `id` is that of the task or the artifact; contexts and owners have their own."""

    kind: DeletionKind
    owner: str
    context_id: str = ""
    id: str = ""
    if_over: bool = False
    """For a context: stop if a new task begins in it, until it expires again."""

    @property
    def name(self) -> str:
        """The id that clients use."""
        match self.kind:
            case DeletionKind.CONTEXT:
                return self.context_id
            case DeletionKind.OWNER:
                return self.owner
            case _:
                return self.id


class DeletionInput(Wire):
    """`removed`: counts of earlier runs of the same deletion.

    `quiet` and `idle` count the last steps of the run before, in a row: those that found nothing, and those
    that found something and could remove nothing.
    """

    target: DeletionTarget
    removed: RemovedCounts = RemovedCounts()
    quiet: int = 0
    idle: int = 0


class RemoveResult(Wire):
    """Counts of a step. `found_nothing`: no data were found, so that the deletion may be complete."""

    removed: RemovedCounts = RemovedCounts()
    found_nothing: bool = False


class DeletionPort(ABC):
    """Remove all data of a target, in any state."""

    @abstractmethod
    @activity.defn
    async def remove(self, target: DeletionTarget) -> RemoveResult:
        """Take one limited step. It is safe to repeat at any time.

        Indexes are removed last, so that a run after a crash still finds the rest.
        """
