"""Guarantees of a task for the artifacts of its tools."""

import pytest

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage
from everloop.workflows.contract.questions import ApproveInput, Question, QuestionKind
from everloop.workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    Script,
    ScriptedModel,
    answer,
    asks,
    asks_writer,
)
from tests.workflows.conftest import StartTask, failure_of, run

SERIAL = ToolSpec(serial=True)
WRITER = AgentSpec(id="agent", tools={"write": SERIAL, "look": ToolSpec()}, artifact_tool="write")


def writes(call: RunToolInput) -> ToolReply | None:
    """Answer `write` as a tool that has written an artifact."""
    if call.call.name != "write":
        return None
    return ToolMessage(call_id=call.call.id, name="write", content="written", artifacts=("report",))


def scripted(*script: Script) -> FakePorts:
    return FakePorts(ScriptedModel(*script), CountingTools(reply=writes))


async def test_serial_calls_of_a_reply_run_one_after_another(start_task: StartTask) -> None:
    """Calls of serial tools keep the order of the reply, also with one another; others run beside them."""
    tools = CountingTools()
    spec = AgentSpec(id="agent", tools={"write": SERIAL, "add": SERIAL})
    calls = asks(("a", "write"), ("b", "add"), ("x", "look"), ("c", "write"))
    ports = FakePorts(ScriptedModel(calls, answer("done")), tools)
    await run(start_task(ports, spec))
    order = [call.call.id for call in tools.calls]
    assert [call_id for call_id in order if call_id != "x"] == ["a", "b", "c"]
    assert order.index("x") < order.index("b")
    assert tools.most_at_once <= 2
    assert {(call.call.id, call.reply_position, call.position) for call in tools.calls} == {
        ("a", 1, 2),
        ("b", 1, 3),
        ("x", 1, 4),
        ("c", 1, 5),
    }


async def test_a_serial_call_waits_for_the_answer_to_the_one_before(start_task: StartTask) -> None:
    """While people decide on a serial call, the next one does not overtake it."""

    def reply(call: RunToolInput) -> ToolReply | None:
        if call.call.id != "a" or call.answers:
            return None
        return Question(id="a", kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)

    tools = CountingTools(reply=reply)
    ports = FakePorts(ScriptedModel(asks(("a", "write"), ("b", "write")), answer("done")), tools)
    async with start_task(ports, AgentSpec(id="agent", tools={"write": SERIAL})) as handle:
        await ports.publish.until_asked()
        assert [call.call.id for call in tools.calls] == ["a"]
        await handle.signal(AgentTask.approve, ApproveInput(call_id="a", approved=True))
        await handle.result()
    assert [call.call.id for call in tools.calls] == ["a", "a", "b"]


async def test_an_answer_waits_until_the_artifact_is_written(start_task: StartTask) -> None:
    """A task with a required artifact makes the model write it, and then ends with its answer."""
    ports = scripted(answer("Done."), asks(("w", "write")))
    async with start_task(ports, WRITER) as handle:
        result = await handle.result()
        progress = await handle.query(AgentTask.progress)
    assert (result.state, result.excerpt, result.iterations) == (TaskState.COMPLETED, "Done.", 2)
    assert [call.tool for call in ports.model.calls] == [None, "write"]
    assert [call.call.name for call in ports.tools.calls] == ["write"]
    assert ports.model.calls[1].statuses == ()  # no text was written that is not in the answer
    assert progress.transcript_length == 4
    assert [status.state for status in ports.publish.statuses] == [TaskState.COMPLETED]


@pytest.mark.parametrize("spec", [WRITER, WRITER.model_copy(update={"artifact_tool": None})])
async def test_nobody_is_made_to_write_what_is_there(start_task: StartTask, spec: AgentSpec) -> None:
    """A task that has its artifact, or needs none, ends with its answer."""
    script = [asks(("w", "write"))] if spec.artifact_tool else []
    ports = scripted(*script, answer("Done."))
    await run(start_task(ports, spec))
    assert {call.tool for call in ports.model.calls} == {None}


@pytest.mark.parametrize("reply", [answer("No."), asks(("l", "look"))])
async def test_a_task_without_its_artifact_fails(start_task: StartTask, reply: AssistantMessage) -> None:
    """The model gets one chance; if it writes nothing, the task fails with a name of its own."""
    ports = scripted(answer("Done."), reply)
    async with start_task(ports, WRITER) as handle:
        raised = await failure_of(handle)
        view = await handle.query(AgentTask.view)
    assert raised.type == failures.NO_ARTIFACT
    assert [artifact.artifact_id for artifact in view.artifacts] == ["response"]


async def test_a_sub_agent_tells_what_it_wrote(start_task: StartTask) -> None:
    """A sub-agent's artifact in the context counts as an artifact of the task that called it."""
    ports = scripted(asks_writer("w"), asks(("1", "write")), answer("ok"), answer("Done."))
    ports.agents.spec = AgentSpec(id="writer", tools={"write": SERIAL})
    spec = AgentSpec(id="agent", tools={"writer": ToolSpec(agent="writer")}, artifact_tool="write")
    result = await run(start_task(ports, spec))
    assert result.excerpt == "Done."
    (stored,) = ports.tools.results
    assert stored.result.artifacts == ("report",)
