"""Memory of a worker for tasks that wait for people."""

import gc
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.client import Client

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.questions import ApproveInput
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import TASK_WORK, FakePorts, ScriptedModel, answer
from tests.support.servers.processes import until
from tests.workflows.conftest import Handle, start_workflow, unique_queue
from tests.workflows.people.asking import asking
from tests.workflows.turns.test_model_turn import WAITS, fails


async def _approve(handle: Handle) -> None:
    await handle.signal(AgentTask.approve, ApproveInput(approved=True))


async def _resume(handle: Handle) -> None:
    await handle.signal(AgentTask.resume)


CASES: dict[str, tuple[Callable[[], FakePorts], Callable[[Handle], Awaitable[None]]]] = {
    "people": (lambda: asking("a", a={}), _approve),
    "operator": (
        lambda: FakePorts(ScriptedModel(fails(failures.MODEL_UNAVAILABLE), answer("done"))),
        _resume,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_task_that_waits_for_people_leaves_memory(client: Client, case: str) -> None:
    """Nothing of it stays, and it continues where it stopped."""
    make, act = CASES[case]
    ports, settings = make(), WorkerSettings(task_queue=unique_queue(), shutdown_grace=0)
    evict_after = timedelta(milliseconds=50)
    async with running_workers(client, ports.wired(), settings, TASK_WORK, evict_after=evict_after):
        handle = await start_workflow(client, settings.task_queue, WAITS)
        await ports.publish.until(lambda: bool(ports.publish.statuses))
        await until(lambda: not _in_memory(handle.id))
        await act(handle)
        assert (await handle.result()).state is TaskState.COMPLETED


def _in_memory(task_id: str) -> bool:
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, AgentTask)]
    return any(task._ref.task_id == task_id for task in kept)
