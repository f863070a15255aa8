"""Runs of the housekeeping, as Temporal describes them."""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.service import RPCError, RPCStatusCode

from everloop.runtime.schedules.schedule_definition import QueueSettings
from everloop.runtime.temporal.describe import find_run
from everloop.runtime.temporal.housekeeping_schedule import LONGEST_RUN
from everloop.runtime.temporal.temporal_connection import connect_temporal
from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_WORKFLOW_TYPE,
    HousekeepingInput,
    HousekeepingResult,
    housekeeping_schedule_id,
)

ANSWER_TIMEOUT = timedelta(seconds=10)
"""Timeout of requests to Temporal."""

RUN_TIMEOUT = LONGEST_RUN
"""Timeout of a run."""

LAST_RUNS = 5
"""Limit of listed runs."""


class HousekeepingError(Exception):
    """The housekeeping failed; the message is one line with the fix."""

    @classmethod
    def of_silence(cls) -> Self:
        return cls(
            f"Temporal does not answer within {ANSWER_TIMEOUT.total_seconds():g} s; see TEMPORAL_ADDRESS and "
            "whether it runs there"
        )


@dataclass(frozen=True)
class HousekeepingRun:
    """A run that the schedule has started; `result` is None while it runs, and if it has none."""

    started: datetime
    workflow_id: str
    status: str
    result: HousekeepingResult | None


@dataclass(frozen=True)
class ScheduleStatus:
    """State of the schedule; without `next_run` it is paused."""

    schedule_id: str
    is_paused: bool
    note: str
    next_run: datetime | None
    last_runs: tuple[HousekeepingRun, ...]


class HousekeepingRuns:
    """Start runs, and inspect those of the schedule."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self.task_queue = task_queue

    async def run(self, *, dry_run: bool) -> HousekeepingResult:
        """Execute a complete run and return its result.

        Raises:
            HousekeepingError: Temporal does not answer, or the run does not end in time.
        """
        workflow_id = f"{housekeeping_schedule_id(self.task_queue)}-by-hand-{uuid.uuid4()}"
        try:
            async with asyncio.timeout(RUN_TIMEOUT.total_seconds()):
                return await self._client.execute_workflow(
                    HOUSEKEEPING_WORKFLOW_TYPE,
                    HousekeepingInput(dry_run=dry_run),
                    id=workflow_id,
                    task_queue=self.task_queue,
                    result_type=HousekeepingResult,
                    execution_timeout=LONGEST_RUN,
                    static_summary="count what could be removed" if dry_run else "clean up",
                )
        except TimeoutError as error:
            raise HousekeepingError(
                f"{workflow_id} has not ended within {RUN_TIMEOUT.total_seconds():g} s; see whether a worker "
                f"runs on the queue {self.task_queue} (EVERLOOP_TASK_QUEUE); the Temporal UI shows it"
            ) from error
        except WorkflowFailureError as error:
            raise HousekeepingError(
                f"{workflow_id} was ended: {error.cause}; look at it in the Temporal UI"
            ) from error
        except RPCError as error:
            raise _refusal(error) from error

    async def status(self) -> ScheduleStatus:
        """Return the state of the schedule, and its last runs, the newest first.

        Raises:
            HousekeepingError: the schedule does not exist, or Temporal does not answer.
        """
        schedule_id = housekeeping_schedule_id(self.task_queue)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT.total_seconds()):
                described = await self._client.get_schedule_handle(schedule_id).describe()
                starts = [
                    (each.started_at, each.action.workflow_id)
                    for each in described.info.recent_actions[-LAST_RUNS:]
                    if isinstance(each.action, ScheduleActionExecutionStartWorkflow)
                ]
                runs = [await self._scheduled_run(started, workflow_id) for started, workflow_id in starts]
        except TimeoutError as error:
            raise HousekeepingError.of_silence() from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise HousekeepingError(
                    f"there is no schedule {schedule_id}; each worker makes it when it starts, unless the "
                    "namespace forbids schedules: see EVERLOOP_TASK_QUEUE, and the log of a worker"
                ) from error
            raise _refusal(error) from error
        return ScheduleStatus(
            schedule_id,
            described.schedule.state.paused,
            described.schedule.state.note or "",
            None if described.schedule.state.paused else next(iter(described.info.next_action_times), None),
            tuple(reversed(runs)),
        )

    async def _scheduled_run(self, started: datetime, workflow_id: str) -> HousekeepingRun:
        handle = self._client.get_workflow_handle(workflow_id, result_type=HousekeepingResult)
        run = await find_run(self._client, workflow_id)
        if run is None:
            return HousekeepingRun(started, workflow_id, "forgotten", None)
        is_done = run.status is WorkflowExecutionStatus.COMPLETED
        return HousekeepingRun(
            started, workflow_id, run.status.name.lower(), await handle.result() if is_done else None
        )


async def connected_runs() -> HousekeepingRuns:
    """Connect to the Temporal server and queue that the environment names.

    Raises:
        HousekeepingError: Temporal does not answer.
        TemporalUnreachableError: the server is unreachable, or the connection settings are invalid.
        EncryptionError: the keys cannot be used.
    """
    queue = QueueSettings().task_queue
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT.total_seconds()):
            return HousekeepingRuns(await connect_temporal(), queue)
    except TimeoutError as error:
        raise HousekeepingError.of_silence() from error


def _refusal(error: RPCError) -> HousekeepingError:
    reason = " ".join(error.message.split())
    return HousekeepingError(f"Temporal does not do this ({error.status.name}): {reason}; try again")
