"""Deletion: what the workflow that deletes and its activity tell each other. It holds ids, and no content."""

from abc import ABC, abstractmethod
from enum import StrEnum

from temporalio import activity

from everloop.workflows.contract.payloads import Wire

DELETION_WORKFLOW_TYPE = "Deletion"

NEVER_GONE = "NeverGone"
"""What was deleted is still there after many tries. Not retryable."""

OF, REMOVED = "of", "removed"
"""Names in the memo of a deletion: what it deletes, and what it has removed until now."""


class DeletionKind(StrEnum):
    """What is deleted, with all that belongs to it."""

    TASK = "task"
    CONTEXT = "context"
    ARTIFACT = "artifact"
    OWNER = "owner"


class Removed(Wire):
    """How much was removed: tasks of clients, artifacts, keys of Redis, blobs."""

    tasks: int = 0
    artifacts: int = 0
    keys: int = 0
    blobs: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            tasks=self.tasks + other.tasks,
            artifacts=self.artifacts + other.artifacts,
            keys=self.keys + other.keys,
            blobs=self.blobs + other.blobs,
        )


class DeletionTarget(Wire):
    """What is to be deleted. `id` is that of the task or the artifact; contexts and owners have their own."""

    kind: DeletionKind
    owner: str
    context_id: str = ""
    id: str = ""
    if_over: bool = False
    """Of a context: nothing is deleted any more once a task begins in it, until its time is over again."""

    @property
    def name(self) -> str:
        """The id by which a client knows it."""
        match self.kind:
            case DeletionKind.CONTEXT:
                return self.context_id
            case DeletionKind.OWNER:
                return self.owner
            case _:
                return self.id


class DeletionInput(Wire):
    """`removed`: what earlier runs of the same deletion have."""

    target: DeletionTarget
    removed: Removed = Removed()


class RemoveResult(Wire):
    """What a step has removed. `found_nothing`: nothing was there any more, so that it may be all."""

    removed: Removed = Removed()
    found_nothing: bool = False


class DeletionPort(ABC):
    """Remove everything of something, whatever state it is in."""

    @abstractmethod
    @activity.defn
    async def remove(self, target: DeletionTarget) -> RemoveResult:
        """Take one limited step; it is safe to repeat at any time.

        What finds the rest goes last, so that whoever goes on after a crash finds the rest as well.
        """
