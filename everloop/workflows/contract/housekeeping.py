"""Housekeeping: what the workflow that cleans up and its activities tell each other."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from temporalio import activity

from everloop.workflows.contract.payloads import Wire

HOUSEKEEPING_WORKFLOW_TYPE = "Housekeeping"

HOUSEKEEPING_REFUSED = "HousekeepingRefused"
"""Nobody can tell what is still needed, so nothing was removed. Not retryable."""


def housekeeping_schedule_id(task_queue: str) -> str:
    """Return the schedule that cleans up for the Everloop whose workflows wait on this queue."""
    return f"everloop-housekeeping-{task_queue}"


class Kind(StrEnum):
    """What is removed when its time is over; also the attribute `kind` of the metric."""

    VIEWS = "views"
    """Tasks whose views have expired, in the lists of tasks and of open tasks."""
    CONVERSATIONS = "conversations"
    """Conversations that nobody has added to for their time to live."""
    ARTIFACTS = "artifacts"
    """Artifacts whose time to live has ended, with their content."""
    PENDING_BLOBS = "pending-blobs"
    """Blobs that were put for a change of an artifact which was never made."""
    ARTIFACT_BLOBS = "artifact-blobs"
    """Blobs of artifacts that no artifact names, wherever they are left from."""
    PAYLOADS = "payloads"
    """Large payloads of workflows that Temporal no longer knows."""
    RETENTIONS = "retentions"
    """Contexts and tasks that were to be kept for a time which is over: their deletions begin."""


class HousekeepingInput(Wire):
    """`dry_run`: remove nothing, only count what would be removed now."""

    dry_run: bool = False


class CleanInput(Wire):
    """Look at a limited number of things of one kind, from `cursor` on (empty: from the beginning)."""

    kind: Kind
    dry_run: bool = False
    cursor: str = ""


class CleanResult(Wire):
    """How many were removed, and where to go on; an empty `cursor`: nothing is left to look at."""

    removed: int = 0
    cursor: str = ""


class KindResult(Wire):
    """What became of one kind.

    `cursor`: where the next run goes on, because this one had enough. `finished_at`: when all of this kind
    was last looked at. `failure`: why this run could not go on with it, "" if it could.
    """

    removed: int = 0
    cursor: str = ""
    finished_at: datetime | None = None
    failure: str = ""


class HousekeepingResult(Wire):
    """What a run did, for each kind."""

    dry_run: bool = False
    kinds: Mapping[Kind, KindResult] = {}


class HousekeepingPort(ABC):
    """Remove what nobody needs any more."""

    @abstractmethod
    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        """Take one limited step through things of one kind; it is safe to repeat at any time.

        Raises:
            ApplicationError: `HousekeepingRefused` (not retryable): nobody can tell what is still needed.
        """
