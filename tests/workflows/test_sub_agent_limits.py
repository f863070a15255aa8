"""How often a task asks other agents, and what they may use."""

import pytest
from temporalio.client import WorkflowFailureError

from everloop.workflows.contract.calls import (
    CallModelInput,
)
from everloop.workflows.contract.messages import (
    AssistantMessage,
    Usage,
)
from tests.support.fakes.ports import (
    FakePorts,
    ScriptedModel,
    answer,
    asks,
)
from tests.workflows.conftest import StartTask
from tests.workflows.people.writers import PARENT, asks_writer


async def test_a_task_asks_other_agents_only_so_often(start_task: StartTask) -> None:
    """The model reads that it has to go on without."""
    ports = FakePorts(ScriptedModel(asks_writer("v", "w"), answer("A poem."), answer("done")))
    async with start_task(ports, PARENT.model_copy(update={"max_sub_agents": 1})) as handle:
        await handle.result()
    outcomes = sorted(stored.result.outcome for stored in ports.tools.results)
    assert outcomes == ["error", "ok"]
    refused = next(s.result.content for s in ports.tools.results if s.result.outcome == "error")
    assert refused.startswith("this task has asked other agents 1 times")


async def test_a_sub_agent_has_what_is_left_of_the_budget(start_task: StartTask) -> None:
    """A child that would use more than its parent has left is stopped by the parent's limit."""
    busy = asks(("x", "x")).model_copy(update={"usage": Usage(input_tokens=60)})
    first = asks_writer("w").model_copy(update={"usage": Usage(input_tokens=40)})
    ports = FakePorts(ScriptedModel(first, busy, answer("never")))
    async with start_task(ports, PARENT.model_copy(update={"max_tokens": 100})) as handle:
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    (stored,) = ports.tools.results
    assert stored.result.content.startswith("writer failed: stopped after 60 tokens")


async def test_sub_agents_at_once_each_have_all_that_was_left(start_task: StartTask) -> None:
    """What they use together may be more than that; then the task ends after them."""

    async def works(call: CallModelInput) -> AssistantMessage:
        busy = asks(("x", "x")).model_copy(update={"usage": Usage(input_tokens=50)})
        return busy if call.length == 1 else answer("A poem.")

    first = asks_writer("v", "w").model_copy(update={"usage": Usage(input_tokens=40)})
    ports = FakePorts(ScriptedModel(first, *[works] * 4, answer("never")))
    async with start_task(ports, PARENT.model_copy(update={"max_tokens": 100})) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    results = [stored.result.content for stored in ports.tools.results]
    assert results == ["A poem."] * 2
    assert "stopped after 140 tokens" in str(failed.value.cause)
