"""Permanent deletion of a task, a context, an artifact, or all data of an owner."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from everloop.workflows.contract.deletion_payloads import (
    DELETION_WORKFLOW_TYPE,
    NEVER_GONE,
    REMOVED,
    DeletionInput,
    DeletionPort,
    DeletionTarget,
    RemovedCounts,
    RemoveResult,
)

QUIET_STEPS = 2
"""Empty steps in a row that complete a deletion."""

QUIET_PAUSE = timedelta(seconds=5)
"""Between these: writes that were in progress when their task ended have finished by then."""

PAUSE = timedelta(seconds=1)
"""Initial pause after a step that found something: Temporal needs a moment to delete a workflow. It grows."""

MOST_IDLE_STEPS = 100
"""Maximum steps in a row that find something, and can remove nothing."""


@workflow.defn(name=DELETION_WORKFLOW_TYPE)
class DeletionWorkflow:
    """Takes steps until two in a row find nothing; then the deletion is complete.

    It waits for unavailable stores. It holds ids and counts, but no deleted content.
    """

    @workflow.run
    async def run(self, request: DeletionInput) -> RemovedCounts:
        removed, quiet, idle = request.removed, request.quiet, request.idle
        while True:
            step = await _execute(request.target)
            removed += step.removed
            workflow.upsert_memo({REMOVED: removed})
            quiet = quiet + 1 if step.found_nothing else 0
            if quiet == QUIET_STEPS:
                return removed
            idle = idle + 1 if step.removed == RemovedCounts() and not quiet else 0
            if idle == MOST_IDLE_STEPS:
                raise ApplicationError(
                    "something of it is still known to Temporal, and cannot be removed; look for it in the "
                    "Temporal UI, and delete again",
                    type=NEVER_GONE,
                    non_retryable=True,
                )
            await workflow.sleep(QUIET_PAUSE if quiet else PAUSE * (1 + idle // 10))
            if workflow.info().is_continue_as_new_suggested():
                # Else the memo would be that with which the first run began.
                workflow.continue_as_new(
                    DeletionInput(target=request.target, removed=removed, quiet=quiet, idle=idle),
                    memo={**workflow.memo(), REMOVED: removed},
                )


async def _execute(target: DeletionTarget) -> RemoveResult:
    return await workflow.execute_activity_method(
        DeletionPort.remove,
        target,
        start_to_close_timeout=timedelta(minutes=10),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(minutes=1)),
        summary=f"take a step: {target.kind}",
    )
