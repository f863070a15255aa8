"""The housekeeping schedule: created by the first worker, and left as operators change it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import structlog
from structlog.typing import FilteringBoundLogger
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError

from everloop.runtime.temporal.encryption_codec import KEY_ID
from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_WORKFLOW_TYPE,
    HousekeepingInput,
    housekeeping_schedule_id,
)

EVERY = timedelta(minutes=5)

LONGEST_RUN = timedelta(hours=1)
"""A run that no worker takes, or that hangs, is ended, so that it does not block the next."""

CATCH_UP = timedelta(minutes=1)
"""Runs that were due while Temporal was away are skipped: the next one does everything."""

_CALL_TIMEOUT = timedelta(seconds=10)

_log: FilteringBoundLogger = structlog.get_logger(__name__)


async def ensure_housekeeping(client: Client, task_queue: str) -> bool:
    """Create or update the schedule; return whether it exists.

    A pause or note of an operator stays. It is idempotent, also for several workers at a time. Where
    schedules are forbidden, or Temporal does not answer, a warning is logged.
    """
    schedule_id = housekeeping_schedule_id(task_queue)
    schedule = housekeeping_schedule(task_queue)
    try:
        try:
            await client.create_schedule(schedule_id, schedule, rpc_timeout=_CALL_TIMEOUT)
        except ScheduleAlreadyRunningError:
            handle = client.get_schedule_handle(schedule_id)
            (made,) = await client.data_converter.encode([HousekeepingInput()])
            await handle.update(lambda known: _update(known, schedule, made), rpc_timeout=_CALL_TIMEOUT)
    except RPCError as error:
        _log.warning(
            "no schedule for the housekeeping: nothing is cleaned up by itself; allow schedules in this "
            "namespace, or start `everloop housekeeping run` now and then",
            schedule_id=schedule_id,
            error=f"{error.status.name}: {error.message}",
        )
        return False
    return True


def housekeeping_schedule(task_queue: str) -> Schedule:
    """Return the schedule of an Everloop whose workflows use this queue."""
    return Schedule(
        action=ScheduleActionStartWorkflow(
            HOUSEKEEPING_WORKFLOW_TYPE,
            HousekeepingInput(),
            id=housekeeping_schedule_id(task_queue),
            task_queue=task_queue,
            execution_timeout=LONGEST_RUN,
            static_summary="clean up",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=EVERY)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )


def _update(stored: ScheduleUpdateInput, schedule: Schedule, made: Payload) -> ScheduleUpdate | None:
    """Return the necessary change, None if the schedule is current; `made`: the current input."""
    there = stored.description.schedule
    is_same_action = (
        isinstance(there.action, ScheduleActionStartWorkflow)
        and isinstance(schedule.action, ScheduleActionStartWorkflow)
        and (there.action.workflow, there.action.task_queue, there.action.execution_timeout)
        == (schedule.action.workflow, schedule.action.task_queue, schedule.action.execution_timeout)
        and _has_key_of(made, there.action)
    )
    if is_same_action and there.spec.intervals == schedule.spec.intervals and there.policy == schedule.policy:
        return None
    schedule.state = there.state
    return ScheduleUpdate(schedule)


def _has_key_of(made: Payload, action: ScheduleActionStartWorkflow) -> bool:
    """Return True if the input is encrypted by the current key: an older key may be removed."""
    given = cast("Sequence[Payload]", action.args)
    return [payload.metadata.get(KEY_ID) for payload in given] == [made.metadata.get(KEY_ID)]
