"""Queries about the workflow runs of tasks: ended ones with their ends, and stuck ones."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionId
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import TypedSearchAttributes
from temporalio.converter import decode_typed_search_attributes
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.gateway.errors import (
    RPC_TIMEOUT,
    TaskUnknownError,
    TemporalUnavailableError,
    translate_blob_errors,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.gateway.gateway_instruments import workflow_problems
from everloop.runtime.telemetry.logs import task_fields
from everloop.runtime.temporal.describe import RunDescription, describe
from everloop.runtime.temporal.executions import UNQUOTABLE, listed_pages
from everloop.runtime.temporal.inspection import REPORTED_PROBLEMS
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskState

STUCK_ATTEMPTS = 3
"""Attempts of a workflow step before it is reported as a problem: two failures may be a deployment."""

RECENT_EVENTS = 20
"""Events at the end of a history that are searched for the failure of its last step."""

EVENTS_AT_ONCE = 100
"""Events of a history that are fetched with one call."""


_ENDINGS = {
    WorkflowExecutionStatus.COMPLETED: (TaskState.COMPLETED, "the task is done"),
    WorkflowExecutionStatus.FAILED: (TaskState.FAILED, "the task failed"),
    WorkflowExecutionStatus.CANCELED: (TaskState.CANCELED, "the task was canceled"),
    WorkflowExecutionStatus.TERMINATED: (TaskState.FAILED, "the task was terminated"),
    WorkflowExecutionStatus.TIMED_OUT: (TaskState.FAILED, "the task ran out of time"),
}
"""States of tasks for closed workflows that did not publish their end."""

_NO_REASON = "terminated by user via frontend"
"""Reason that the server writes if an operator gave none."""

_NAMED = frozenset(
    value for name, value in vars(failures).items() if name.isupper() and isinstance(value, str)
)
"""Failures with a message for clients."""

_OPEN_STATES = ", ".join(f"'{state}'" for state in TaskState if state not in TERMINAL_STATES)


@dataclass(frozen=True)
class RunEnd:
    """End of a task's workflow. `run_id` is empty if the workflow was deleted.

    `failure` names the failure (`everloop.workflows.contract.failures`), if it has such a name.
    """

    state: TaskState
    reason: str
    at: datetime
    run_id: str
    failure: str = ""

    @property
    def is_its_own(self) -> bool:
        """Whether the workflow ended regularly, so that it has more details than this."""
        return self.state is not TaskState.FAILED or self.failure not in {"", failures.BLOB_MISSING}


@dataclass(frozen=True)
class Alive:
    """Open run, with its last published status: of this version or a later one."""

    run_id: str
    state: TaskState | None = None
    version: int = 0
    is_cancel_requested: bool = False


@dataclass(frozen=True)
class StuckRun:
    """Run whose next step fails again and again. `reported` is the server's report of it, if any."""

    task_id: str
    run_id: str
    reported: tuple[str, ...] = ()


class Runs:
    """Queries Temporal about runs; changes nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def state(self, task_id: str) -> RunEnd | StuckRun | Alive:
        """Return the state of a started task's newest run: ended, stuck or open.

        Raises:
            TemporalUnavailableError: Temporal does not respond.
            PayloadLostError, PayloadsUnavailableError: a payload of its end cannot be read.
        """
        try:
            async with translate_temporal_errors(), translate_not_found(task_id), translate_blob_errors():
                run = await describe(self._client, task_id)
                if run.status in _ENDINGS:
                    return await self._ending(run, *_ENDINGS[run.status])
        except TaskUnknownError:
            reason = "the workflow of the task no longer exists"
            return RunEnd(TaskState.FAILED, reason, datetime.now(UTC), run_id="")
        except RPCError as error:
            raise TemporalUnavailableError from error
        if run.attempt >= STUCK_ATTEMPTS:
            return StuckRun(task_id, run.run_id, _reported(run.search_attributes))
        return Alive(run.run_id, run.state, run.version, run.is_cancel_requested)

    async def ended_unpublished(self, since: datetime) -> AsyncGenerator[list[str]]:
        """Yield pages of clients' tasks with a run that was closed after `since` without publishing its end.

        A newer run of the same task may be open. Visibility lags behind: repeat the query for recent
        times.
        """
        query = (
            f"WorkflowType = '{names.WORKFLOW_TYPE}'"
            " AND ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed')"
            f" AND {names.TASK_STATE.name} IN ({_OPEN_STATES}) AND CloseTime > '{since.isoformat()}'"
        )
        async for page in listed_pages(self._client, query, RPC_TIMEOUT):
            # The task of a sub-agent has no view; its parent receives its end.
            yield [_id(run) for run in page if not names.is_child_task_id(_id(run))]

    async def stuck(self) -> AsyncGenerator[list[StuckRun]]:
        """Yield pages of runs with problems that the server reports.

        The server needs `system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute` for that.
        """
        query = (
            f"WorkflowType = '{names.WORKFLOW_TYPE}' AND ExecutionStatus = 'Running'"
            f" AND {REPORTED_PROBLEMS.name} IS NOT NULL"
        )
        async for page in listed_pages(self._client, query, RPC_TIMEOUT):
            yield [StuckRun(_id(run), run.execution.run_id, _reported(_attributes(run))) for run in page]

    async def begun(self, since: datetime) -> AsyncGenerator[Mapping[str, Alive]]:
        """Yield pages of clients' tasks with an open run that began after `since`."""
        query = (
            f"WorkflowType = '{names.WORKFLOW_TYPE}' AND ExecutionStatus = 'Running'"
            f" AND StartTime > '{since.isoformat()}'"
        )
        async for page in listed_pages(self._client, query, RPC_TIMEOUT):
            yield {_id(run): _alive(run) for run in page if not names.is_child_task_id(_id(run))}

    async def running(self, task_ids: Sequence[str]) -> Mapping[str, Alive]:
        """Return the open ones of these tasks, from visibility, which lags behind."""
        runs = self._runs_of(task_ids, "CloseTime IS NULL AND ")  # also paused ones
        return {_id(run): _alive(run) async for run in runs}

    async def has_any(self, task_ids: Sequence[str]) -> bool:
        """Return True if visibility has a run of one of these tasks, open or closed."""
        return await anext(self._runs_of(task_ids), None) is not None

    async def _runs_of(
        self, task_ids: Sequence[str], condition: str = ""
    ) -> AsyncGenerator[WorkflowExecutionInfo]:
        asked = ", ".join(f"'{task_id}'" for task_id in task_ids if not UNQUOTABLE & set(task_id))
        if not asked:
            return
        async for page in listed_pages(self._client, f"{condition}WorkflowId IN ({asked})", RPC_TIMEOUT):
            for run in page:
                yield run

    async def cause(self, stuck: StuckRun) -> str:
        """Return a short cause of the failure, without content of the task.

        Raises:
            TemporalUnavailableError: Temporal does not respond.
        """
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecutionId(workflow_id=stuck.task_id, run_id=stuck.run_id),
            maximum_page_size=RECENT_EVENTS,
        )
        async with translate_temporal_errors():
            history = await self._client.workflow_service.get_workflow_execution_history_reverse(request)
        causes = (cause for event in history.history.events if (cause := _cause(event)))
        return next(causes, " ".join(stuck.reported) or "unknown cause")

    async def _ending(self, run: RunDescription, state: TaskState, reason: str) -> RunEnd:
        """Add the details in the last event of the run."""
        failure = ""
        async for event in self._client.get_workflow_handle(
            run.workflow_id, run_id=run.run_id
        ).fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
            given = event.workflow_execution_terminated_event_attributes.reason
            if given and given != _NO_REASON:
                reason = f"{reason}: {given}"
            if event.HasField("workflow_execution_failed_event_attributes"):
                failed = event.workflow_execution_failed_event_attributes.failure
                reason, failure = await self._read_failure(failed)
        at = run.close_time or datetime.now(UTC)
        return RunEnd(state, reason, at, run.run_id, failure)

    async def _read_failure(self, failure: Failure) -> tuple[str, str]:
        """Return the message and name of a failure of ours; of any other one, its type only."""
        error = await self._client.data_converter.decode_failure(failure)
        kind = (error.type if isinstance(error, ApplicationError) else None) or type(error).__name__
        if isinstance(error, ApplicationError) and kind in _NAMED:
            return error.message, kind
        return f"an error in the workflow's code ({kind})", ""


async def history_of(
    client: Client, task_id: str, run_id: str, page_size: int = EVENTS_AT_ONCE
) -> AsyncGenerator[HistoryEvent]:
    """Yield the events of a run.

    Raises:
        TaskUnknownError: Temporal no longer has them.
        TemporalUnavailableError: it does not respond.
    """
    events = client.get_workflow_handle(task_id, run_id=run_id).fetch_history_events(page_size=page_size)
    while True:
        async with translate_temporal_errors(), translate_not_found(task_id):
            event = await anext(events, None)
        if event is None:
            return
        yield event


def _id(run: WorkflowExecutionInfo) -> str:
    return run.execution.workflow_id


def _attributes(run: WorkflowExecutionInfo) -> TypedSearchAttributes:
    return decode_typed_search_attributes(run.search_attributes)


def _alive(run: WorkflowExecutionInfo) -> Alive:
    attributes = _attributes(run)
    state, version = attributes.get(names.TASK_STATE), attributes.get(names.TASK_VERSION, 0)
    return Alive(run.execution.run_id, TaskState(state) if state else None, version)


def _reported(attributes: TypedSearchAttributes) -> tuple[str, ...]:
    return tuple(sorted(attributes.get(REPORTED_PROBLEMS) or ()))


def _cause(event: HistoryEvent) -> str:
    """Return the cause of a failed step, empty for other events."""
    if event.HasField("workflow_task_timed_out_event_attributes"):
        return "a worker did not answer in time"
    if not event.HasField("workflow_task_failed_event_attributes"):
        return ""
    failed = event.workflow_task_failed_event_attributes
    name = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    kind = failed.failure.application_failure_info.type
    words = name.replace("_", " ").lower()
    return f"{words} ({kind})" if kind else words


# Tasks that are stuck because their workflow's code fails: a warning, a log line, a metric.

MAX_REMEMBERED = 10_000
"""Maximum problems that a process remembers. Older ones are looked up again."""

_log = structlog.get_logger()


class Problems:
    """Reports each problem to subscribers and operators once."""

    def __init__(self, views: TaskViews, runs: Runs) -> None:
        self._views = views
        self._runs = runs
        self._reported: dict[StuckRun, None] = {}

    async def report(self, stuck: StuckRun) -> None:
        """Report a stuck run. Repeating it, here or in another process, reports nothing new.

        The problem of a sub-agent is reported in the stream of the client's task.

        Raises:
            TemporalUnavailableError: the cause of the problem is unknown.
        """
        if stuck in self._reported:
            return
        cause = await self._runs.cause(stuck)
        problem = StuckRun(stuck.task_id, stuck.run_id, (cause,))
        if problem not in self._reported:
            await self._publish(stuck, cause)
            self._remember(problem)
        self._remember(stuck)

    async def _publish(self, stuck: StuckRun, cause: str) -> None:
        client_task, _, child = stuck.task_id.partition("/")
        snapshot = await self._views.load(client_task, most=0)
        if not child:
            await self._warn(stuck.task_id, stuck.run_id, f"the task cannot go on: {cause}")
        elif snapshot:
            text = f"a sub-agent of the task cannot go on: {cause}"
            await self._warn(snapshot.view.task_id, snapshot.view.run_id, text)
        about = {**(task_fields(snapshot.view) if snapshot else {}), "task_id": stuck.task_id}
        _log.warning("workflow task fails again and again", **about, cause=cause)
        workflow_problems.add(1, {"cause": cause})

    async def _warn(self, task_id: str, run_id: str, text: str) -> None:
        # With Temporal's id of the run: the view may have an older one, and all events of this run are
        # newer than the view.
        if not await self._is_published(task_id, text):
            await self._views.publish(task_id, run_id, [Warned(text=text)])

    async def _is_published(self, task_id: str, text: str) -> bool:
        """Whether the stream has this warning, from another process or from before our restart."""
        position = START
        while page := await self._views.read({task_id: position}, wait=0):
            if any(isinstance(streamed.event, Warned) and streamed.event.text == text for streamed in page):
                return True
            position = page[-1].position
        return False

    def _remember(self, stuck: StuckRun) -> None:
        self._reported[stuck] = None
        if len(self._reported) > MAX_REMEMBERED:
            del self._reported[next(iter(self._reported))]
