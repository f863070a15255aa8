"""At a limit the model answers with its results so far; if no tool works it reads so before the task ends."""

import asyncio

import pytest

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, Usage, text_of
from everloop.workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    Script,
    ScriptedModel,
    answer,
    asks,
    asks_writer,
    fails,
)
from tests.workflows.conftest import StartTask, cached_or_replayed, failure_of, run, user

cached = cached_or_replayed
USAGE = Usage(input_tokens=40, output_tokens=10, cost=0.25)
TWICE = AgentSpec(id="agent", max_iterations=2, last_call=True)
REACHED = "the task has reached its limit of"


def endless(count: int) -> list[Script]:
    """One tool call after the other."""
    return [asks((f"c{n}", "x")).model_copy(update={"usage": USAGE}) for n in range(count)]


async def at_last(call: CallModelInput) -> AssistantMessage:
    """Answer a last call as the activity does."""
    closing = f"{call.last}; the answer is what there was by then"
    return answer("Half.").model_copy(update={"closing": closing, "usage": USAGE})


@pytest.mark.parametrize(
    ("reason", "agent", "calls", "limit"),
    [
        (failures.ITERATION_LIMIT, TWICE, 3, "2 iterations"),
        (failures.TOKEN_LIMIT, AgentSpec(id="agent", max_tokens=120, last_call=True), 4, "120 tokens"),
        (failures.COST_LIMIT, AgentSpec(id="agent", max_cost=0.25, last_call=True), 2, "$0.25"),
    ],
)
async def test_the_model_answers_at_a_limit(
    start_task: StartTask, reason: str, agent: AgentSpec, calls: int, limit: str
) -> None:
    """The task is completed; its last status has the limit, for people and for programs."""
    ports = FakePorts(ScriptedModel(*endless(calls - 1), at_last))
    async with start_task(ports, agent) as handle:
        result = await handle.result()
        view = await handle.query(AgentTask.view)
    assert [call.last for call in ports.model.calls] == [""] * (calls - 1) + [f"{REACHED} {limit}"]
    assert (result.state, result.excerpt, result.iterations) == (TaskState.COMPLETED, "Half.", calls)
    assert view.status.message
    assert view.status.message.metadata == {"reason": reason}
    assert text_of(view.status.message.parts) == f"{REACHED} {limit}; the answer is what there was by then"
    assert result.usage == Usage(input_tokens=40 * calls, output_tokens=10 * calls, cost=0.25 * calls)


REFUSED = answer("").model_copy(update={"refused": "it was empty"})
INVALID = answer("four").model_copy(update={"refused": "it is no number", "is_invalid": True})
AWAY = fails(failures.MODEL_UNAVAILABLE, "the provider is away")


@pytest.mark.parametrize(
    ("last", "failure", "text"),
    [
        (REFUSED, failures.ITERATION_LIMIT, "stopped after 3 iterations without an answer"),
        (INVALID, failures.ITERATION_LIMIT, "stopped after 3 iterations without an answer"),
        (AWAY, failures.MODEL_UNAVAILABLE, "the provider is away"),
    ],
    ids=["refused", "invalid", "no reply"],
)
async def test_there_is_one_last_call(start_task: StartTask, last: Script, failure: str, text: str) -> None:
    """An invalid answer ends the task as if there had been no call."""
    ports = FakePorts(ScriptedModel(*endless(2), last))
    async with start_task(ports, TWICE) as handle:
        failed = await failure_of(handle)
    assert (failed.type, len(ports.model.calls)) == (failure, 3)
    assert text in failed.message


async def test_a_message_that_the_last_call_has_not_seen_is_not_answered(start_task: StartTask) -> None:
    """The task fails at its limit; the model's text and the message stay in the history."""
    started, added = asyncio.Event(), asyncio.Event()

    async def slow(call: CallModelInput) -> AssistantMessage:
        started.set()
        await added.wait()
        return await at_last(call)

    ports, before, during = FakePorts(ScriptedModel(*endless(2), slow)), user("And?"), user("Hurry!")
    async with start_task(ports, TWICE) as handle:
        await handle.execute_update(AgentTask.add_message, before, id=before.message_id)
        await started.wait()
        await handle.execute_update(AgentTask.add_message, during, id=during.message_id)
        added.set()
        failed = await failure_of(handle)
        view = await handle.query(AgentTask.view)
    assert (failed.type, len(ports.model.calls)) == (failures.ITERATION_LIMIT, 3)
    assert [text_of(message.parts) for message in view.history] == ["Hello", "And?", "Half.", "Hurry!"]


@pytest.mark.parametrize(
    "agent",
    [TWICE.model_copy(update={"last_call": False}), TWICE.model_copy(update={"artifact_tool": "write"})],
    ids=["not wanted", "an answer is not enough"],
)
async def test_there_is_no_last_call(start_task: StartTask, agent: AgentSpec) -> None:
    """If the agent has disabled it, or needs an artifact, which cannot be written without tools."""
    ports = FakePorts(ScriptedModel(*endless(2), answer("too late")))
    async with start_task(ports, agent) as handle:
        failed = await failure_of(handle)
    assert (failed.type, len(ports.model.calls)) == (failures.ITERATION_LIMIT, 2)


async def test_a_new_run_makes_the_last_call(start_long_task: StartTask) -> None:
    """A long history and the limit coincide; the new run finds the limit again, and calls once."""
    many = asks(*((f"c{n}", "x") for n in range(12)))
    agent = TWICE.model_copy(update={"max_iterations": 1})
    ports = FakePorts(ScriptedModel(many, at_last))
    result = await run(start_long_task(ports, agent))
    first, second = ports.model.calls
    assert first.task.run_id != second.task.run_id
    assert (result.state, result.iterations) == (TaskState.COMPLETED, 2)


ASKS_WRITER = asks_writer("w").model_copy(update={"usage": USAGE})


@pytest.mark.parametrize(
    ("limit", "asked", "read"),
    [
        (90, ["agent", "writer", "writer", "agent"], "Half.\n\n[the task has reached its limit of 40 tokens"),
        (50, ["agent", "agent"], "writer failed: stopped after 0 tokens without an answer"),
    ],
)
async def test_a_sub_agent_answers_at_the_limit_of_both(
    start_task: StartTask, limit: int, asked: list[str], read: str
) -> None:
    """It gets the remaining budget of its parent; with nothing left it does not begin.

    Then the parent answers.
    """
    agent = AgentSpec(
        id="agent", max_tokens=limit, last_call=True, tools={"writer": ToolSpec(agent="writer")}
    )
    replies = [ASKS_WRITER, *([*endless(1), at_last] if len(asked) > 2 else []), at_last]
    ports = FakePorts(ScriptedModel(*replies))
    ports.agents.spec = AgentSpec(id="any", last_call=True)
    async with start_task(ports, agent) as handle:
        result = await handle.result()
        page = await handle.query(AgentTask.transcript, 0)
    assert [call.task.agent_id for call in ports.model.calls] == asked
    assert result.excerpt == "Half."
    (given,) = (message.content for message in page.messages if isinstance(message, ToolMessage))
    assert given.startswith(read)


def failing(call: RunToolInput) -> ToolReply | None:
    """Make all calls fail, except one; a person rejects another."""
    outcome = "rejected" if call.call.id == "no" else "error"
    return None if call.call.id == "works" else call.call.result("no", outcome)


TOLD = "[In the last 2 iterations no tool call worked. Do something else, or answer with what you have.]"


@pytest.mark.parametrize(
    ("after", "failure", "told"),
    [
        ([answer("done")], "", 1),
        ([asks(("c3", "x"))], failures.TOOL_FAILURE_LIMIT, 1),
        ([REFUSED, asks(("no", "x")), asks(("c3", "x"))], failures.TOOL_FAILURE_LIMIT, 1),
        ([asks(("works", "x")), *(asks((f"c{n}", "x")) for n in (4, 5)), answer("done")], "", 2),
    ],
    ids=["answers", "goes on", "told once", "works again"],
)
async def test_the_model_is_told_that_no_tool_works(
    start_task: StartTask, after: list[AssistantMessage], failure: str, told: int
) -> None:
    """Before the iteration that may end the task; clients do not get it, one call that works is enough."""
    agent = AgentSpec(id="agent", max_tool_failures=2, last_call=True)
    script = [asks(("c1", "x")), asks(("c2", "x")), *after]
    ports = FakePorts(ScriptedModel(*script), CountingTools(reply=failing))
    async with start_task(ports, agent) as handle:
        if failure:
            failed = await failure_of(handle)
            assert failed.type == failure
            assert "in the last 3 iterations no tool call worked" in failed.message
        else:
            await handle.result()
        view = await handle.query(AgentTask.view)
    notices = [text_of(m.parts) for call in ports.model.calls for m in call.new if not m.message_id]
    assert notices.count(TOLD) == told
    assert [text_of(m.parts) for m in ports.model.calls[2].new] == [TOLD]
    assert len(ports.model.calls) == len(script)
    assert all(message.message_id for message in view.history)
