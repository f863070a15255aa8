"""Limits: each ends a task with a name of its own."""

import asyncio

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from everloop.workflows import limits
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, Usage, text_of
from everloop.workflows.contract.tasks import AgentSpec, TaskState
from tests.support.fakes.ports import CountingTools, FakePorts, Script, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask

USAGE = Usage(input_tokens=40, output_tokens=10, cost=0.25)


def endless() -> list[Script]:
    return [asks((f"c{n}", "x")).model_copy(update={"usage": USAGE}) for n in range(10)]


def broken(call: RunToolInput) -> ToolReply:
    return ToolMessage(call_id=call.call.id, name=call.call.name, content="no", outcome="error")


LIMITS: dict[str, tuple[AgentSpec, int]] = {
    failures.ITERATION_LIMIT: (AgentSpec(id="agent", max_iterations=4), 4),
    failures.TOKEN_LIMIT: (AgentSpec(id="agent", max_tokens=120), 3),
    failures.COST_LIMIT: (AgentSpec(id="agent", max_cost=0.5), 2),
    failures.TOOL_FAILURE_LIMIT: (AgentSpec(id="agent", max_tool_failures=3), 3),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_limit_ends_the_task_with_its_name(start_task: StartTask, limit: str) -> None:
    """The status message says what was reached; its usage stands in the view."""
    agent, calls = LIMITS[limit]
    tools = CountingTools(reply=broken) if limit == failures.TOOL_FAILURE_LIMIT else CountingTools()
    ports = FakePorts(ScriptedModel(*endless()), tools)

    async with start_task(ports, agent) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        view = await handle.query(AgentTask.view)

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == limit
    assert len(ports.model.calls) == calls
    assert view.status.state is TaskState.FAILED
    assert view.status.message
    assert view.status.message.metadata == {"reason": limit}
    assert "stopped" in text_of(view.status.message.parts)
    assert view.status.metadata["usage"] == {
        "inputTokens": 40 * calls,
        "outputTokens": 10 * calls,
        "cost": 0.25 * calls,
    }


async def test_a_task_that_knows_too_much_ends(
    start_task: StartTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its whole transcript would have to go along to a new run; the reason says what to do."""
    monkeypatch.setattr(limits, "MAX_CARRIED_BYTES", 1_000_000)

    def large(call: RunToolInput) -> ToolReply:
        return ToolMessage(call_id=call.call.id, name=call.call.name, content="x" * 400_000)

    ports = FakePorts(ScriptedModel(*endless()), CountingTools(reply=large))
    async with start_task(ports) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == failures.TRANSCRIPT_LIMIT
    assert "1.2 MB, more than the 1 MB" in failed.value.cause.message
    assert "artifacts" in failed.value.cause.message
    assert len(ports.model.calls) == 3


async def test_one_tool_that_works_ends_a_row_of_failures(start_task: StartTask) -> None:
    """Only iterations in a row count, and only those in which nothing worked; a person's no is no failure."""

    def every_other(call: RunToolInput) -> ToolReply | None:
        if call.call.id.startswith("no"):
            return broken(call).model_copy(update={"outcome": "rejected"})
        return None if call.call.id in {"c2", "b1"} else broken(call)

    replies = [asks(("c0", "x")), asks(("c1", "x"), ("b1", "x")), asks(("c2", "x")), asks(("c3", "x"))]
    replies += [asks((f"no{n}", "x")) for n in range(3)]
    ports = FakePorts(ScriptedModel(*replies, answer("done")), CountingTools(reply=every_other))
    async with start_task(ports, AgentSpec(id="agent", max_tool_failures=2)) as handle:
        result = await handle.result()
    assert result.excerpt == "done"


@pytest.mark.parametrize("ends_well", [True, False])
async def test_the_wall_clock_ends_a_call_that_runs(start_task: StartTask, *, ends_well: bool) -> None:
    """A task does not wait for a slow model; the call has ended when the task says that it failed."""
    running: list[bool] = []

    async def slow(_call: CallModelInput) -> AssistantMessage:
        running.append(True)
        try:
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            running.clear()
            if not ends_well:
                raise
        return asks(("a", "x"))

    ports = FakePorts(ScriptedModel(slow))
    async with start_task(ports, AgentSpec(id="agent", wall_clock=1)) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == failures.TIME_LIMIT
    assert running == []
    assert ports.tools.calls == []
    assert ports.publish.statuses[-1].state is TaskState.FAILED


async def test_a_cancelled_task_with_a_wall_clock_is_canceled(start_task: StartTask) -> None:
    """The clock does not turn a cancellation into a failure."""
    started = asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        started.set()
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)

    ports = FakePorts(ScriptedModel(slow))
    async with start_task(ports, AgentSpec(id="agent", wall_clock=60)) as handle:
        await started.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert ports.publish.statuses[-1].state is TaskState.CANCELED
