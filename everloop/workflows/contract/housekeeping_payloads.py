"""Housekeeping: inputs and results of its workflow and its activities."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from temporalio import activity

from everloop.workflows.contract.payloads import Wire

HOUSEKEEPING_WORKFLOW_TYPE = "Housekeeping"

HOUSEKEEPING_REFUSED = "HousekeepingRefused"
"""It cannot be determined which data are still needed, so nothing was removed. Not retryable."""


def housekeeping_schedule_id(task_queue: str) -> str:
    """Return the id of the cleanup schedule of the Everloop with this queue of workflows."""
    return f"everloop-housekeeping-{task_queue}"


class Kind(StrEnum):
    """Kinds of expired data; also the attribute `kind` of the metric."""

    VIEWS = "views"
    """Tasks whose views have expired, in the lists of tasks and of open tasks."""
    CONVERSATIONS = "conversations"
    """Conversations without a new message for their time to live."""
    ARTIFACTS = "artifacts"
    """Artifacts whose time to live has ended, with their content."""
    PENDING_BLOBS = "pending-blobs"
    """Blobs of a change of an artifact that was never made."""
    ARTIFACT_BLOBS = "artifact-blobs"
    """Blobs without an artifact, whatever their origin."""
    PAYLOADS = "payloads"
    """Large payloads of workflows that are deleted from Temporal."""
    RETENTIONS = "retentions"
    """Contexts and tasks whose retention has ended: their deletions begin."""


class HousekeepingInput(Wire):
    """`dry_run`: remove nothing, only count expired items."""

    dry_run: bool = False


class CleanInput(Wire):
    """Check a limited number of items of one kind, from `cursor` on (empty: from the beginning)."""

    kind: Kind
    dry_run: bool = False
    cursor: str = ""


class CleanResult(Wire):
    """Number of removed items, and the next position; an empty `cursor`: nothing is left to check."""

    removed: int = 0
    cursor: str = ""


class KindResult(Wire):
    """Result for one kind.

    `cursor`: where the next run goes on, because this one reached its limit. `finished_at`: end of the
    last complete pass over this kind. `failure`: why this run stopped at it, "" if it did not.
    """

    removed: int = 0
    cursor: str = ""
    finished_at: datetime | None = None
    failure: str = ""


class HousekeepingResult(Wire):
    """Result of a run, for each kind."""

    dry_run: bool = False
    kinds: Mapping[Kind, KindResult] = {}


class HousekeepingPort(ABC):
    """Remove data that are no longer needed."""

    @abstractmethod
    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        """Take one limited step through items of one kind. It is safe to repeat at any time.

        Raises:
            ApplicationError: `HousekeepingRefused` (not retryable): it is unknown which data are still
                needed.
        """
