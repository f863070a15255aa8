"""Runs of the housekeeping, and deletions, with recorded histories."""

import dataclasses
from collections.abc import Callable

from temporalio.client import Client, WorkflowHistory
from temporalio.exceptions import ApplicationError

from everloop.runtime.temporal.deletions import Deletions
from everloop.runtime.temporal.housekeeping_schedule import ensure_housekeeping
from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.deletion_payloads import (
    DeletionKind,
    DeletionTarget,
    RemovedCounts,
    RemoveResult,
)
from everloop.workflows.contract.housekeeping_payloads import (
    HOUSEKEEPING_REFUSED,
    CleanResult,
    Kind,
    housekeeping_schedule_id,
)
from everloop.workflows.housekeeping import ROUNDS
from tests.support.fakes.housekeeping import ScriptedDeletion, ScriptedHousekeeping, run_by_schedule
from tests.support.fakes.ports import FakePorts, ScriptedModel

HOUSEKEEPING_SCENARIOS: dict[str, Callable[[], ScriptedHousekeeping]] = {
    "housekeeping": lambda: ScriptedHousekeeping(
        {
            Kind.VIEWS: [CleanResult(removed=2, cursor="1"), CleanResult(removed=1)] * 2,
            Kind.ARTIFACT_BLOBS: [
                ApplicationError("scripted failure", type=HOUSEKEEPING_REFUSED, non_retryable=True)
            ],
            Kind.PAYLOADS: [CleanResult(removed=1, cursor=f"{n}") for n in range(ROUNDS)],
        }
    )
}


DELETION_SCENARIOS: dict[str, Callable[[], ScriptedDeletion]] = {
    "deletion": lambda: ScriptedDeletion(
        [
            RemoveResult(removed=RemovedCounts(keys=3, blobs=1)),
            RemoveResult(),
            OSError("scripted failure"),
            RemoveResult(removed=RemovedCounts(tasks=1)),
            RemoveResult(found_nothing=True),
            RemoveResult(removed=RemovedCounts(keys=1)),
        ]
    )
}


async def run_deletion(client: Client, port: ScriptedDeletion, queue: str) -> WorkflowHistory:
    """Delete a task, and return the history of the deletion."""
    ports = dataclasses.replace(FakePorts(ScriptedModel()).wired(), deletion=port)
    async with running_workers(client, ports, WorkerSettings(task_queue=queue), ["workflows"]):
        target = DeletionTarget(kind=DeletionKind.TASK, owner="owner", context_id="context", id="task")
        deletion_id = await Deletions(client, queue).start(target)
        handle = client.get_workflow_handle(deletion_id)
        await handle.result()
    return await handle.fetch_history()


async def run_housekeeping(
    client: Client, name: str, cleaners: ScriptedHousekeeping, queue: str
) -> WorkflowHistory:
    """Run the schedule twice, and return the history of the second run, which continues the first."""
    ports = dataclasses.replace(FakePorts(ScriptedModel()).wired(), housekeeping=cleaners)
    async with running_workers(client, ports, WorkerSettings(task_queue=queue), ["workflows"]):
        assert await ensure_housekeeping(client, queue)
        schedule = client.get_schedule_handle(housekeeping_schedule_id(queue))
        await run_by_schedule(client, schedule, 1)
        workflow_id = await run_by_schedule(client, schedule, 2)
        await schedule.delete()
    return await client.get_workflow_handle(workflow_id).fetch_history()
