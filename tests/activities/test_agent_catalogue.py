"""Looking up the agent that a tool call asks."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agents import AgentCatalogue
from agents.agent import Agent
from agents.registry import AgentRegistry
from stores.memory_task_views import MemoryTaskViews
from stores.task_views import START
from workflows.contract import failures
from workflows.contract.calls import LoadAgentInput
from workflows.contract.events import StatusChanged, ToolStarted
from workflows.contract.messages import ToolCall
from workflows.contract.tasks import TaskRef, TaskState

WRITER = Agent(id="writer", name="Writer", description="", models=["a", "b"])


def _load_agent_input(agent_id: str) -> LoadAgentInput:
    ref = TaskRef(task_id=str(uuid4()), run_id="run", context_id="c", owner="owner", agent_id="agent")
    return LoadAgentInput(
        task=ref,
        call=ToolCall(id="call", name=agent_id, arguments="{}"),
        agent_id=agent_id,
        status=StatusChanged(version=1, state=TaskState.WORKING, at=datetime.now(UTC)),
    )


async def test_a_sub_agent_is_announced_and_described() -> None:
    """The status that comes with the call, then its start, and what its task pins."""
    call, views = _load_agent_input("writer"), MemoryTaskViews()

    spec = await ActivityEnvironment().run(AgentCatalogue(AgentRegistry([WRITER]), views).load_agent, call)

    events = [streamed.event for streamed in await views.read({call.task.task_id: START}, wait=0)]
    assert spec == WRITER.spec
    assert events == [call.status, ToolStarted(call_id="call", name="writer", attempt=1)]


async def test_a_sub_agent_that_this_worker_lacks_is_left_to_another() -> None:
    """The failure is retryable, and nothing is announced."""
    call, views = _load_agent_input("other"), MemoryTaskViews()

    with pytest.raises(ApplicationError, match="this process serves: writer") as error:
        await ActivityEnvironment().run(AgentCatalogue(AgentRegistry([WRITER]), views).load_agent, call)

    assert (error.value.type, error.value.non_retryable) == (failures.AGENT_UNKNOWN, False)
    assert await views.read({call.task.task_id: START}, wait=0) == []
