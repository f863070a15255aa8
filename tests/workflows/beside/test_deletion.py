"""The workflow that deletes: its end, and failures meanwhile."""

import asyncio
import dataclasses
from collections.abc import Sequence

from temporalio.client import Client, WorkflowHandle

from everloop.runtime.temporal.deletions import Deletions
from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.contract.deletion_payloads import (
    DeletionKind,
    DeletionTarget,
    RemovedCounts,
    RemoveResult,
)
from tests.support.fakes.housekeeping import ScriptedDeletion
from tests.support.fakes.ports import FakePorts, ScriptedModel
from tests.workflows.conftest import unique_queue

NOTHING = RemoveResult(found_nothing=True)


def removing(**counts: int) -> RemoveResult:
    return RemoveResult(removed=RemovedCounts(**counts))


async def delete(
    client: Client, cached: int, steps: Sequence[RemoveResult | Exception]
) -> tuple[RemovedCounts, ScriptedDeletion, WorkflowHandle[object, object], Deletions]:
    port, queue = ScriptedDeletion(steps), unique_queue()
    ports = dataclasses.replace(FakePorts(ScriptedModel()).wired(), deletion=port)
    settings = WorkerSettings(task_queue=queue, max_cached_workflows=cached, shutdown_grace=0)
    deletions = Deletions(client, queue)
    async with running_workers(client, ports, settings, ["workflows"]):
        target = DeletionTarget(kind=DeletionKind.TASK, owner=queue, context_id="c", id="t1")
        first = await deletions.start(target)
        assert await deletions.start(target) == first
        handle = client.get_workflow_handle(first, result_type=RemovedCounts)
        told = [0]
        while (known := await deletions.find(first)) and known.state == "running":
            told.append(known.removed.keys)
            await asyncio.sleep(0.05)
        assert told == sorted(told)
        removed = await handle.result()
    return removed, port, client.get_workflow_handle(first), deletions


async def test_it_is_done_when_two_steps_in_a_row_find_nothing(client: Client, cached: int) -> None:
    """Data found after a step without finds are removed as well; counts are added, and reported."""
    steps = [
        removing(tasks=1, keys=3),
        NOTHING,
        removing(keys=2, blobs=1),
        NOTHING,
        NOTHING,
        removing(keys=9),
    ]
    removed, port, handle, deletions = await delete(client, cached, steps)
    known = await deletions.find(handle.id)

    assert (removed, len(port.calls)) == (RemovedCounts(tasks=1, keys=5, blobs=1), 5)
    assert {call.id for call in port.calls} == {"t1"}
    assert known
    assert (known.state, known.removed, known.target.name) == ("done", removed, "t1")
    assert known.ended_at


async def test_a_deletion_that_goes_on_in_a_new_run_forgets_nothing(impatient_client: Client) -> None:
    """Removed data and the result of the step before are carried over, wherever a run ends."""
    counts = range(1, 9)
    steps = [[*[removing(keys=1)] * count, *[NOTHING] * 4] for count in counts]
    found = await asyncio.gather(*(delete(impatient_client, 0, each) for each in steps))
    known = [await deletions.find(handle.id) for _, _, handle, deletions in found]

    assert [removed.keys for removed, *_ in found] == [*counts]
    assert [len(port.calls) for _, port, *_ in found] == [count + 2 for count in counts]
    assert [each and each.removed.keys for each in known] == [*counts]


async def test_a_store_that_is_away_is_waited_for(client: Client, cached: int) -> None:
    """A step that fails is retried without a limit."""
    removed, port, _, deletions = await delete(
        client, cached, [removing(keys=1), OSError("away"), removing(keys=1), NOTHING, NOTHING]
    )

    assert (removed.keys, len(port.calls)) == (2, 5)
    assert await deletions.find("none") is None
