"""Repairs views that differ from Temporal: unpublished ends, reset runs, lost statuses."""

import asyncio
import time
from datetime import UTC, datetime

import structlog

from everloop.gateway.errors import (
    STORE_FAILURES,
    GatewayError,
    NoWorkerError,
    PayloadLostError,
    PayloadsUnavailableError,
    TaskUnknownError,
    TemporalUnavailableError,
    UnavailableError,
)
from everloop.gateway.gateway_instruments import record_finalized
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.task_workflows import Tasks, canceled_status
from everloop.gateway.tasks.workflow_runs import Alive, Problems, RunEnd, Runs, StuckRun
from everloop.runtime.blobs import BlobError, BlobsUnavailableError
from everloop.runtime.redis import cancel
from everloop.runtime.telemetry.logs import task_fields
from everloop.stores.artifacts.artifact_errors import ArtifactError
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.artifacts.changes import Fail
from everloop.stores.artifacts.rendering import with_artifacts
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Snapshot, position_order
from everloop.workflows.contract.artifacts import ArtifactStatus, StoredArtifact
from everloop.workflows.contract.events import REASON, StatusChanged
from everloop.workflows.contract.fold import fails_drafts
from everloop.workflows.contract.messages import AgentMessage, TextPart
from everloop.workflows.contract.names import child_task_id, context_key
from everloop.workflows.contract.tasks import TaskState, TaskView

# Artifacts that a task left unfinished when its workflow was ended from outside.

_log = structlog.get_logger()


async def fail_unfinished(view: TaskView, artifacts: Artifacts) -> None:
    """Fail the unfinished artifacts of a task and its sub-agents. Repeating it changes nothing.

    Subscribers are notified by the status that ends the task. If the store is unavailable, the
    artifacts stay unfinished until they expire: the end of the task does not wait for them.
    """
    try:
        for artifact in await artifacts.list_artifacts(context_key(view.owner, view.context_id)):
            if artifact.status is not ArtifactStatus.BUILDING or not _is_of(artifact, view.task_id):
                continue
            try:
                await artifacts.apply(artifact.context_id, artifact.artifact_id, Fail())
            except ArtifactError as error:  # it was completed, or removed, meanwhile
                _log.debug("artifact not failed", artifact_id=artifact.artifact_id, error=str(error))
    except (BlobError, *STORE_FAILURES) as error:
        _log.warning("artifacts stay unfinished", **task_fields(view), error=type(error).__name__)


def _is_of(artifact: StoredArtifact, task_id: str) -> bool:
    return artifact.task_id == task_id or artifact.task_id.startswith(child_task_id(task_id, ""))


async def restore_view(view: TaskView, views: TaskViews, artifacts: Artifacts) -> bool:
    """Restore a view from its workflow, with its artifacts; return whether clients see the task.

    Raises:
        PayloadsUnavailableError: the content of an artifact cannot be read now.
    """
    if view.is_hidden:
        return False
    try:
        complete = await with_artifacts(view, artifacts, views.max_bytes)
    except BlobsUnavailableError as error:
        raise PayloadsUnavailableError from error
    await views.restore(complete)
    return True


LAST_STEP = 1_000_000_000
"""Sorts after every passing status that an activity may have published under the same version."""

UNTAKEN = 1
"""The version of a task's first working status. A task that is canceled before still publishes it, with
its end, when a worker starts. Clients ignore it, as no status may follow an end."""

CHECK_PAUSE = 15.0
"""Seconds without an event after which a task is checked, and between its checks."""

LOOK_WAIT = 0.5
"""Seconds to check whether an ended task was reset. After a timeout it counts as ended."""

MAX_CHECKS = 10_000
"""Maximum checked tasks that a process remembers."""

CHECKS_AT_ONCE = 20


class Reconciler:
    """Repairs such views, so that no client waits for an event that was lost.

    `pause` is in seconds: a task without events for so long is checked, at most once in that time.
    """

    def __init__(self, stores: Stores, tasks: Tasks, runs: Runs, *, pause: float = CHECK_PAUSE) -> None:
        self._views = stores.views
        self._secrets = stores.secrets
        self._artifacts = stores.artifacts
        self._tasks = tasks
        self._runs = runs
        self.problems = Problems(stores.views, runs)
        self._pause = pause
        self._checks: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._read: dict[str, None] = {}
        self._slots = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def reconcile(self, task_id: str) -> bool:
        """Update the view of a task if it differs from Temporal; return whether the task has ended.

        One rule for all differences: an end that the workflow did not publish, a run that an operator
        made by Reset, a status that Redis has lost. Repeating it changes nothing.

        Raises:
            UnavailableError: Temporal does not respond, or the workflow has to, and it has no worker.
        """
        looked_at = datetime.now(UTC)
        return await self._act_on(task_id, await self._runs.state(task_id), looked_at)

    async def reconcile_ended(self, task_id: str) -> None:
        """Reconcile an ended task before a request for it is rejected.

        An operator may have reset it. If Temporal does not respond soon, the view counts.

        Raises:
            UnavailableError: it was reset, and has no worker to answer.
        """
        looked_at = datetime.now(UTC)
        try:
            async with asyncio.timeout(LOOK_WAIT):
                run = await self._runs.state(task_id)
        except (TimeoutError, TemporalUnavailableError):
            return
        await self._act_on(task_id, run, looked_at)

    def is_due(self, silent_since: float) -> bool:
        """Whether the last event is old enough for a check. The time is in seconds since the epoch."""
        return time.time() - silent_since >= self._pause

    def note_reading(self, task_id: str) -> None:
        """Record that an open, silent task was read, for the next sweep."""
        if len(self._read) < MAX_CHECKS:
            self._read[task_id] = None

    def take_readings(self) -> list[str]:
        """Return the recorded tasks, and clear the record."""
        taken, self._read = list(self._read), {}
        return taken

    def check_soon(self, task_id: str) -> "asyncio.Task[None] | None":
        """Check a task, once for all concurrent requests.

        Returns the running check: when it is done, the view is current. None after a recent check.
        Errors are left to the next check.
        """
        now = asyncio.get_running_loop().time()
        self._forget_old_checks(now)
        check = self._checks.get(task_id)
        if check is None:
            check = self._checks[task_id] = now, asyncio.create_task(self._check(task_id))
        return None if check[1].done() else check[1]

    async def close(self) -> None:
        """Cancel all checks."""
        for _, check in list(self._checks.values()):
            await cancel(check)

    def _forget_old_checks(self, now: float) -> None:
        """Drop checks, the oldest first, up to the first one that still runs."""
        while self._checks:
            task_id, (started, oldest) = next(iter(self._checks.items()))
            is_recent = now - started < self._pause and len(self._checks) < MAX_CHECKS
            if is_recent or not oldest.done():
                return
            del self._checks[task_id]

    async def _check(self, task_id: str) -> None:
        try:
            async with self._slots:
                await self.reconcile(task_id)
        except (GatewayError, *STORE_FAILURES) as error:
            _log.debug("task not checked", task_id=task_id, error=str(error))
        except Exception:  # noqa: BLE001 -- no caller awaits this check: no defect may end it silently
            _log.exception("task check failed", task_id=task_id)

    async def _act_on(self, task_id: str, run: RunEnd | StuckRun | Alive, looked_at: datetime) -> bool:
        if isinstance(run, RunEnd):
            await self._finalize(task_id, run)
            return True
        if isinstance(run, StuckRun):
            await self.problems.report(run)
        stored = await self._views.load(task_id, most=0)
        if stored is None:
            return False
        state = stored.view.status.state
        if isinstance(run, Alive) and run.is_cancel_requested and is_untaken(state, stored.view.run_id):
            return await self._cancel_untaken(task_id)
        if lags(state, stored.view.run_id, stored.view.version, run):
            try:
                await self._catch_up(stored.view, looked_at)
            except NoWorkerError:
                if state.is_terminal:  # a view of an open task may be old, but its end is final
                    raise
        return False

    async def _catch_up(self, stored: TaskView, looked_at: datetime) -> None:
        """Update the view from the workflow."""
        view = await self._tasks.view(stored.task_id)
        if _same(view, stored):
            return
        if view.run_id != stored.run_id:
            # The workflow does not publish the state in its initial history, such as its open question; and
            # its view may be older than the end that it takes back.
            view = view.model_copy(update={"status": view.status.model_copy(update={"at": looked_at})})
        if await restore_view(view, self._views, self._artifacts):
            _log.info("task view reconciled", **task_fields(view), state=view.status.state)

    async def _cancel_untaken(self, task_id: str) -> bool:
        """Mark the task as canceled if it was before any worker took it; return whether it was.

        The cancellation stands in the history before the first step of the workflow, which is therefore
        its last: it can end in no other way. The end that it publishes when a worker starts is newer
        than this.
        """
        try:
            beginning = await self._tasks.beginning(task_id)
        except NoWorkerError:  # it has ended meanwhile, and has published its end
            return False
        if beginning.canceled_at is None:
            return False
        status = canceled_status(task_id, beginning.canceled_at)
        event = StatusChanged(
            version=UNTAKEN, step=LAST_STEP, state=status.state, at=status.at, message=status.message
        )
        await self._end(beginning.submitted, beginning.run_id, event)
        return True

    async def _finalize(self, task_id: str, ending: RunEnd) -> None:
        await self._secrets.forget(task_id)
        if (state := await self._views.state(task_id)) and state.is_terminal:
            return
        try:
            # The workflow's own view is better than ours: it may include the answer.
            await restore_view(await self._tasks.view(task_id), self._views, self._artifacts)
        except (TaskUnknownError, PayloadLostError):
            pass
        except UnavailableError:
            if ending.is_its_own:
                raise
        snapshot = await self._views.load(task_id, most=0)
        if snapshot:
            if fails_drafts(ending.state):
                await fail_unfinished(snapshot.view, self._artifacts)
            status = _last_status(snapshot.view, ending)
            if await self._end(snapshot.view, ending.run_id, status):
                _log.warning(
                    "task ended without publishing it", **task_fields(snapshot.view), state=ending.state
                )

    async def _end(self, view: TaskView, run_id: str, status: StatusChanged) -> bool:
        is_final = await self._views.end(view.task_id, run_id, status)
        if is_final:
            record_finalized(view.agent_id, status.state)
        return is_final


def last_published_at(snapshot: Snapshot) -> float:
    """Return when a task last published something, in seconds since the epoch by the store's clock."""
    return position_order(snapshot.position)[0] / 1000


def is_untaken(state: TaskState, run_id: str) -> bool:
    """Whether no worker has published a status yet. A cancellation is then visible in Temporal only."""
    return state is TaskState.SUBMITTED and not run_id


def lags(state: TaskState, run_id: str, version: int, run: Alive | StuckRun | None) -> bool:
    """Whether a view is older than the last status of an open run, or has no such run.

    A task continues after its end in a run that an operator made by Reset. A task that continues as a new
    run publishes as before; one that waits may have been reset to another question. If view and run are in
    the same state, the versions of the statuses decide whether it is the same question.
    """
    if run is None:
        return not state.is_terminal
    if state.is_terminal or isinstance(run, StuckRun):
        return state.is_terminal and run_id != run.run_id
    if run.state is None or run.state is TaskState.SUBMITTED:
        return False
    is_behind = run.state is not state or run.version > version
    return is_behind or (state.is_interrupted and run_id != run.run_id)


def _same(view: TaskView, stored: TaskView) -> bool:
    """Whether a later run has the same status as the view."""
    return (view.version, view.status.state, view.status.message) == (
        stored.version,
        stored.status.state,
        stored.status.message,
    )


def _last_status(view: TaskView, ending: RunEnd) -> StatusChanged:
    message = AgentMessage(
        message_id=f"{view.task_id}-ended",
        parts=(TextPart(text=ending.reason),),
        metadata={REASON: ending.failure} if ending.failure else {},
    )
    return StatusChanged(
        version=view.version,
        step=LAST_STEP,
        state=ending.state,
        at=ending.at,
        message=message,
        metadata=view.status.metadata,
    )
