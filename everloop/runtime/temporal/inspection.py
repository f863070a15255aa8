"""State of a run as Temporal has it without a worker: pending calls, sub-agents, unserved steps."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, VersioningBehavior
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import FailureError

from everloop.runtime.temporal.describe import RunDescription, describe_raw, run_of

REPORTED_PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
"""The server sets it on a run whose steps fail repeatedly, and removes it when one succeeds."""


class CallState(StrEnum):
    """State of a pending call."""

    SCHEDULED = "scheduled"
    """Waiting for a worker, or for its next attempt."""
    STARTED = "started"
    PAUSED = "paused"


@dataclass(frozen=True)
class Pause:
    """Author, time and reason of a pause, as far as given."""

    at: datetime | None
    by: str
    reason: str


@dataclass(frozen=True)
class PendingCall:
    """A pending activity. `failure`: of its last attempt, empty without a failed one.

    `due_at`: when it is, or was, scheduled for a worker. `timeout`: of one attempt; 0 for none.
    """

    activity_id: str
    type: str
    queue: str
    state: CallState
    attempt: int
    due_at: datetime
    started_at: datetime | None
    failed_at: datetime | None
    failure: str
    timeout: timedelta
    pause: Pause | None


@dataclass(frozen=True)
class Inspection:
    """The newest run of a task. `summary`: the title of the task.

    `step_due_at`: since when its next step waits for a worker; None: no step is due. `is_stepping`: a
    worker runs one now. `build`: the only build that may run its steps, in Temporal's format; empty:
    any.
    """

    run: RunDescription
    queue: str
    summary: str
    began_at: datetime
    calls: tuple[PendingCall, ...]
    children: tuple[str, ...]
    step_due_at: datetime | None
    is_stepping: bool
    build: str
    pause: Pause | None

    @property
    def problems(self) -> tuple[str, ...]:
        """The server's report of repeatedly failing steps."""
        return tuple(sorted(self.run.search_attributes.get(REPORTED_PROBLEMS) or ()))


async def inspect(client: Client, task_id: str, *, rpc_timeout: timedelta | None = None) -> Inspection:
    """Inspect the newest run of a task; `rpc_timeout` is per attempt.

    Raises:
        RPCError: Temporal does not have the task, or does not answer.
        ApplicationError, BlobsUnavailableError: a payload cannot be read.
    """
    described = await describe_raw(client, task_id, rpc_timeout=rpc_timeout)
    info, step = described.workflow_execution_info, described.pending_workflow_task
    run = run_of(described)
    has_step = described.HasField("pending_workflow_task")
    is_stepping = has_step and step.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
    began = described.workflow_extended_info.original_start_time
    began_at = _at(began) if began.seconds > 0 else None
    return Inspection(
        run=run,
        queue=described.execution_config.task_queue.name,
        summary=await _summary(client, described),
        began_at=began_at or info.start_time.ToDatetime(UTC),
        calls=tuple([await _call(client, each) for each in described.pending_activities]),
        children=tuple(each.workflow_id for each in described.pending_children),
        step_due_at=_at(step.original_scheduled_time) if has_step and not is_stepping else None,
        is_stepping=is_stepping,
        build=build_of(info.versioning_info),
        pause=_pause_of_run(described) if run.is_paused else None,
    )


def build_of(versioning: WorkflowExecutionVersioningInfo) -> str:
    """Return the build that a run is pinned to, `deployment:build`; empty without one."""
    override = versioning.versioning_override
    if override.HasField("pinned"):
        version = override.pinned.version
    elif versioning.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED:
        version = versioning.deployment_version
    else:
        return ""
    return f"{version.deployment_name}:{version.build_id}"


def _pause_of_run(described: DescribeWorkflowExecutionResponse) -> Pause:
    pause = described.workflow_extended_info.pause_info
    return Pause(_at(pause.paused_time), pause.identity, pause.reason)


async def _call(client: Client, info: PendingActivityInfo) -> PendingCall:
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    state = CallState.STARTED if info.state == started else CallState.SCHEDULED
    pause = None
    if info.paused:
        manual = info.pause_info.manual
        state = CallState.PAUSED
        pause = Pause(_at(info.pause_info.pause_time), manual.identity, manual.reason)
    options = info.activity_options
    return PendingCall(
        activity_id=info.activity_id,
        type=info.activity_type.name,
        queue=options.task_queue.name,
        state=state,
        attempt=info.attempt,
        due_at=info.scheduled_time.ToDatetime(UTC),
        started_at=_at(info.last_started_time),
        failed_at=_at(info.last_attempt_complete_time) if info.HasField("last_failure") else None,
        failure=await _message(client, info.last_failure) if info.HasField("last_failure") else "",
        timeout=options.start_to_close_timeout.ToTimedelta(),
        pause=pause,
    )


async def _message(client: Client, failure: Failure) -> str:
    error = await client.data_converter.decode_failure(failure)
    told = error.message if isinstance(error, FailureError) else str(error)
    return told or type(error).__name__


async def _summary(client: Client, described: DescribeWorkflowExecutionResponse) -> str:
    metadata = described.execution_config.user_metadata
    if not metadata.HasField("summary"):
        return ""
    (summary,) = await client.data_converter.decode([metadata.summary], [str])
    return str(summary)


def _at(time: Timestamp) -> datetime | None:
    """Convert a time; None if it is unset."""
    return time.ToDatetime(UTC) if time.seconds > 0 else None
