"""Skipping of time: for tasks by Temporal's time skipping, and for schedules."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import FastForwardConfig, TimeSkippingConfig, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    ListScheduleMatchingTimesRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleBackfill,
    ScheduleHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from everloop.runtime.temporal.describe import describe_raw, run_of
from everloop.testing.errors import TaskError

TIMEOUT = 10.0
"""Seconds that a busy task gets to finish a model or tool call, before time can be skipped."""

MOST_RUNS = 100
"""Maximum tasks that a schedule starts in one skip."""

_LOOK = 0.02
_QUIET_LOOKS = 5
"""Checks without an event until the due work counts as done: a timer fires a moment after its time."""


async def skip_time(client: Client, task_ids: set[str], duration: timedelta) -> None:
    """Skip time for these tasks and their sub-agents' tasks; due timers fire.

    Raises:
        TaskError: a task is busy with a model or a tool, which take real time.
    """
    await asyncio.gather(*(_skip(client, task_id, duration) for task_id in task_ids))


async def _skip(client: Client, task_id: str, duration: timedelta) -> None:
    length, name = Duration(), str(uuid4())
    length.FromTimedelta(duration)
    ahead = FastForwardConfig(id=name, duration=length)
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=task_id),
        workflow_execution_options=WorkflowExecutionOptions(
            time_skipping_config=TimeSkippingConfig(enabled=True, fast_forward_config=ahead)
        ),
        update_mask=FieldMask(paths=["time_skipping_config"]),
    )
    described = await describe_raw(client, task_id)
    children = [child.workflow_id for child in described.pending_children]
    try:
        await client.workflow_service.update_workflow_execution_options(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # it has ended
            return
        raise
    await asyncio.gather(_arrived(client, task_id), *(_skip(client, child, duration) for child in children))


async def _arrived(client: Client, task_id: str) -> None:
    """Wait until the skipped time is over and the work due by then is done."""
    is_there, steps, quiet = False, 0, 0
    try:
        async with asyncio.timeout(TIMEOUT):
            while quiet < _QUIET_LOOKS:
                described = await describe_raw(client, task_id)
                is_there = not described.workflow_extended_info.time_skipping_info.effective_config.enabled
                if not run_of(described).is_running:
                    return
                is_busy = bool(described.HasField("pending_workflow_task") or described.pending_activities)
                length = described.workflow_execution_info.history_length
                is_quiet = is_there and not is_busy and steps == length
                quiet, steps = (quiet + 1 if is_quiet else 0), length
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        if is_there:  # what fell due takes its time
            return
        raise TaskError(
            f"no time can be skipped in task {task_id} while it calls a model, a tool or a sub-agent that "
            f"works: that took longer than {TIMEOUT:g} s. Skip when it waits for an answer or for its time"
        ) from None


class ScheduleClock:
    """The clock of a schedule, and of the tasks that it started in skipped time."""

    def __init__(self, schedule_id: str) -> None:
        self._id = schedule_id
        self._at = datetime.min.replace(tzinfo=UTC)
        self._started: list[str] = []

    async def skip(self, client: Client, duration: timedelta) -> list[str]:
        """Advance the clock, which is at least now; return the ids of tasks that start.

        They start one after the other, by the overlap policy. A paused schedule starts none.

        Raises:
            TaskError: no such schedule, it starts too many tasks, or a task is busy or fails to start.
        """
        schedule, before = client.get_schedule_handle(self._id), len(self._started)
        self._at = max(self._at, datetime.now(UTC))
        end = self._at + duration
        for at in await _due(schedule, client, self._at, end):
            await self._go_to(at, client)
            if task_id := await _start(schedule, at):
                self._started.append(task_id)
        await self._go_to(end, client)
        return self._started[before:]

    async def _go_to(self, at: datetime, client: Client) -> None:
        await skip_time(client, {*self._started}, at - self._at)
        self._at = at


async def _due(schedule: ScheduleHandle, client: Client, begin: datetime, end: datetime) -> list[datetime]:
    """Return when a schedule starts tasks, after `begin` and up to `end`."""
    first, last = Timestamp(), Timestamp()
    first.FromDatetime(begin)
    last.FromDatetime(end)
    request = ListScheduleMatchingTimesRequest(
        namespace=client.namespace, schedule_id=schedule.id, start_time=first, end_time=last
    )
    try:
        is_paused = (await schedule.describe()).schedule.state.paused
        found = await client.workflow_service.list_schedule_matching_times(request)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise TaskError(
                f"there is no schedule {schedule.id!r}: create it before time is skipped"
            ) from None
        raise
    times = [at.ToDatetime(UTC) for at in found.start_time]
    if len(times) > MOST_RUNS:
        raise TaskError(
            f"the schedule {schedule.id!r} starts more than {MOST_RUNS} tasks in that time; skip less at once"
        )
    return [] if is_paused else [at for at in times if at > begin]


async def _start(schedule: ScheduleHandle, at: datetime) -> str:
    """Start the task of this time; return its id, empty if the overlap policy skips it."""
    left_out = (await schedule.describe()).info.num_actions_skipped_overlap
    await schedule.backfill(ScheduleBackfill(at, at))
    try:
        async with asyncio.timeout(TIMEOUT):
            while True:
                info = (await schedule.describe()).info
                for run in info.recent_actions:
                    if run.scheduled_at == at and isinstance(
                        run.action, ScheduleActionExecutionStartWorkflow
                    ):
                        return run.action.workflow_id
                if info.num_actions_skipped_overlap > left_out:
                    return ""
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        raise TaskError(
            f"the task of the schedule {schedule.id!r} that is due at {at:%Y-%m-%d %H:%M:%S} UTC does not "
            "start: by its overlap it waits for the one before"
        ) from None
