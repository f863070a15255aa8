"""What the workflows of tasks tell of them to those who notify clients."""

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from everloop.activities.push.feed import TaskWorkflows
from everloop.stores.artifacts.interface import Create, NewPart
from everloop.workflows.contract.calls import TASK_UNREADABLE
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer
from tests.support.memory.artifacts import MemoryArtifacts
from tests.support.memory.task_views import MemoryTaskViews
from tests.workflows.conftest import StartTask, start_workflow, unique_queue


@pytest.fixture
def artifacts() -> MemoryArtifacts:
    return MemoryArtifacts(MemoryTaskViews())


@pytest.fixture
def workflows(client: Client, artifacts: MemoryArtifacts) -> TaskWorkflows:
    return TaskWorkflows(client, artifacts)


async def test_a_task_tells_its_view(
    start_task: StartTask, workflows: TaskWorkflows, artifacts: MemoryArtifacts
) -> None:
    """Also when it has ended; the artifacts come from their store."""
    async with start_task(FakePorts(ScriptedModel(answer("Hi.")))) as task:
        await task.result()
        change = Create(task_id=task.id, parts=(NewPart(kind="text", content=b"stored"),))
        await artifacts.apply(context_key("owner", "context"), "log", change)
        view = await workflows.view(task.id)
    assert view
    assert view.status.state is TaskState.COMPLETED
    assert [each.artifact_id for each in view.artifacts] == ["log", "response"]
    assert view.artifacts[0].parts == (TextPart(text="stored"),)


async def test_an_unknown_task_tells_nothing(workflows: TaskWorkflows) -> None:
    """It is gone for good, and so is what could be told of it."""
    assert await workflows.view("unknown") is None


async def test_a_task_without_a_worker_is_waited_for(client: Client, workflows: TaskWorkflows) -> None:
    """Its view cannot be told now; to ask again helps."""
    task = await start_workflow(client, unique_queue())
    with pytest.raises(ApplicationError) as failed:
        await workflows.view(task.id)
    await task.terminate()
    assert failed.value.type == TASK_UNREADABLE
    assert not failed.value.non_retryable
