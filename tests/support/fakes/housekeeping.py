"""Fakes of the ports for housekeeping and deletion, and a helper that triggers schedules."""

import asyncio
from collections.abc import Mapping, Sequence

from temporalio import activity
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, ScheduleHandle

from everloop.workflows.contract.deletion_payloads import DeletionPort, DeletionTarget, RemoveResult
from everloop.workflows.contract.housekeeping_payloads import CleanInput, CleanResult, HousekeepingPort, Kind

Steps = Mapping[Kind, Sequence[CleanResult | Exception]]


class ScriptedHousekeeping(HousekeepingPort):
    """Plays the steps of each kind in order; after the last one there is nothing left to do."""

    def __init__(self, steps: Steps) -> None:
        self._steps = {kind: list(script) for kind, script in steps.items()}
        self.calls: list[tuple[Kind, CleanInput]] = []

    @activity.defn
    async def clean(self, call: CleanInput) -> CleanResult:
        self.calls.append((call.kind, call))
        script = self._steps.get(call.kind)
        step = script.pop(0) if script else CleanResult()
        if isinstance(step, Exception):
            raise step
        return step


class ScriptedDeletion(DeletionPort):
    """Plays the steps of a deletion in order; after the last one nothing is found."""

    def __init__(self, steps: Sequence[RemoveResult | Exception]) -> None:
        self._steps = list(steps)
        self.calls: list[DeletionTarget] = []

    @activity.defn
    async def remove(self, target: DeletionTarget) -> RemoveResult:
        self.calls.append(target)
        step = self._steps.pop(0) if self._steps else RemoveResult(found_nothing=True)
        if isinstance(step, Exception):
            raise step
        return step


async def run_by_schedule(client: Client, schedule: ScheduleHandle, number: int) -> str:
    """Trigger a schedule, wait until this run of it has ended, and return that run's id."""
    await schedule.trigger()
    while len(started := (await schedule.describe()).info.recent_actions) < number:  # noqa: ASYNC110 -- Temporal is asked
        await asyncio.sleep(0.05)
    action = started[-1].action
    assert isinstance(action, ScheduleActionExecutionStartWorkflow)
    await client.get_workflow_handle(action.workflow_id).result()
    return action.workflow_id
