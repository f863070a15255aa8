"""People in the loop: calls that wait for an answer, each on its own."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import JsonValue
from temporalio import activity

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import DataPart, text_of
from everloop.workflows.contract.questions import ApproveInput, SkippedCall
from everloop.workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask, run, say, until_canceled, user
from tests.workflows.people.asking import HeldUp, asking, naming


async def test_a_question_parks_the_task_until_it_is_answered(start_task: StartTask) -> None:
    """The status has the question for people and programs; the call comes again with the answer."""
    ports = asking("a", a={})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        description = await handle.describe()
        noted = DataPart(data={"approved": True, "note": "but be quick"})
        await say(handle, user("").model_copy(update={"parts": (noted,)}))
        await handle.result()
        view = await handle.query(AgentTask.view)

    (asked,) = [status for status in ports.publish.statuses if status.state.is_interrupted]
    assert asked.state is TaskState.INPUT_REQUIRED
    assert asked.message
    assert "May I?" in text_of(asked.message.parts)
    (data,) = [part.data for part in asked.message.parts if isinstance(part, DataPart)]
    assert data == {
        "questions": [{"id": "a", "kind": "confirmation", "text": "May I?", "tool": "x", "arguments": "{}"}]
    }
    assert description.typed_search_attributes[names.TASK_STATE] == "input-required"
    _, again = ports.tools.calls
    (given,) = again.answers
    assert (given.approved, given.value, given.note, given.by) == (True, True, "but be quick", "user")
    (status,) = again.statuses
    assert (status.state, len(status.received)) == (TaskState.WORKING, 1)
    assert again.position == 2
    assert [message.role for message in view.history] == ["user", "agent", "user"]
    assert ports.model.calls[1].new == ()


async def test_what_was_said_before_the_question_was_seen_does_not_answer_it(start_task: StartTask) -> None:
    """The client saw a working task: its OK is a message, and the question stays open."""
    ports = asking("a", a={"purpose": "approval"})
    ports.publish = publisher = HeldUp()
    async with start_task(ports) as handle:
        await publisher.held.wait()
        await handle.execute_update(AgentTask.add_message, user("OK"))
        publisher.go_on.set()
        await publisher.until_asked()
        progress = await handle.query(AgentTask.progress)
        await say(handle, user("no"))
        await handle.result()
    assert (len(progress.questions), progress.inbox) == (1, 1)
    assert [[given.approved for given in call.answers] for call in ports.tools.calls] == [[], [False]]
    assert [text_of(message.parts) for message in ports.model.calls[1].new] == ["OK"]


async def test_who_can_only_write_text_answers_one_question_after_the_other(start_task: StartTask) -> None:
    """The oldest is asked, and stays the current one, whatever else is asked; the status says so."""
    ports = asking("a", "b", "c", a={}, b={"kind": "clarification", "text": "Why?"}, c={})
    async with start_task(ports, AgentSpec(id="agent", max_parallel_tools=1)) as handle:
        for count, text in ((3, "yes"), (2, "It rains."), (1, "no")):
            await ports.publish.until_open(count, now=True)
            await say(handle, user(text))
        await handle.result()
    told = [text_of(s.message.parts) for s in ports.publish.statuses if s.state.is_interrupted and s.message]
    how = 'answer "yes" or "no", and nothing else, or send the data {"approved": true, "note": "…"}'
    assert told[-3:] == [
        f"1 of 3: May I?\n({how})\n2 more follow.",
        "1 of 2: Why?\n(answer in a text or data part)\n1 more follows.",
        f"May I?\n({how})",
    ]
    given = {call.call.id: [given.value for given in call.answers] for call in ports.tools.calls[3:]}
    assert given == {"a": [True], "b": ["It rains."], "c": [False]}


class _GatedTools(CountingTools):
    """Tools of which the slow one ends when the test says so."""

    def __init__(self, reply: Callable[[RunToolInput], ToolReply | None]) -> None:
        super().__init__(reply=reply)
        self.may_end = asyncio.Event()

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        while call.call.name == "slow" and not self.may_end.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.05)
        return await super().run_tool(call)


@pytest.mark.parametrize("by", ["time", "client", "operator"])
async def test_a_call_that_asks_does_not_wait_for_a_slow_one(start_task: StartTask, by: str) -> None:
    """Its timeout runs, and answers count, while the other call runs; the results keep their order."""
    timeout = 0.2 if by == "time" else None
    asked = asking("asks", asks={"timeout": timeout}).tools
    tools = _GatedTools(asked.reply)
    ports = FakePorts(ScriptedModel(asks(("slow", "slow"), ("asks", "x")), answer("done")), tools)

    async with start_task(ports) as handle:
        await ports.publish.until_open(1)
        if by == "client":
            await say(handle, user("yes"))
        elif by == "operator":
            await handle.signal(AgentTask.approve, ApproveInput(call_id="asks", approved=True))
        await tools.until_called("asks", 2)
        assert not tools.may_end.is_set()
        tools.may_end.set()
        await handle.result()
        transcript = await handle.query(AgentTask.transcript)

    assert [call.call.id for call in tools.calls] == ["asks", "asks", "slow"]
    results = [message for message in transcript.messages if message.role == "tool"]
    assert [message.call_id for message in results] == ["slow", "asks"]


async def test_a_call_that_waits_holds_no_slot(start_task: StartTask) -> None:
    """With one slot for all, three calls that ask are asked about at once."""
    names_ = ("a", "b", "c")
    ports = asking(*names_, a={}, b={}, c={})
    async with start_task(ports, AgentSpec(id="agent", max_parallel_tools=1)) as handle:
        await ports.publish.until_open(3)
        for name in reversed(names_):
            await say(handle, naming("yes", name))
        await handle.result()
    assert ports.tools.most_at_once == 1


@pytest.mark.parametrize(("default", "approved"), [(None, False), (True, True)])
async def test_a_question_runs_out_of_time(
    start_task: StartTask, default: JsonValue, *, approved: bool
) -> None:
    """The default is the answer then; without one the call counts as rejected."""
    ports = asking("a", a={"timeout": 0.2, "default": default})
    await run(start_task(ports))
    (given,) = ports.tools.calls[1].answers
    assert (given.by, given.approved) == ("timeout", approved)


@pytest.mark.slow
async def test_a_tool_hears_that_nobody_waits_for_a_call_that_runs(start_task: StartTask) -> None:
    """Its attempt may be lost and get no event."""
    tools = CountingTools(asyncio.Event(), 2)
    ports = FakePorts(ScriptedModel(asks(("a", "x"))), tools)
    async with start_task(ports, AgentSpec(id="agent", tools={"x": ToolSpec(abandons=True)})) as handle:
        await tools.until_called("a")
        await handle.cancel()
        await until_canceled(handle)
    assert [call.abandoned for call in tools.calls] == [False, True]


@pytest.mark.parametrize("how", ["the task is canceled", "an operator skips it"])
async def test_a_tool_hears_that_nobody_waits_any_more(start_task: StartTask, how: str) -> None:
    """While its call asks people, and only if it has the hook; the hook is waited for."""
    ports = asking("a", "b", "c", a={}, b={})
    agent = AgentSpec(id="agent", tools={"x": ToolSpec(abandons=True), "y": ToolSpec()})
    ports.model = ScriptedModel(asks(("a", "x"), ("b", "y"), ("c", "x")), answer("done"))
    async with start_task(ports, agent) as handle:
        await ports.publish.until_open(2)
        if how == "an operator skips it":
            await handle.signal(AgentTask.skip_call, SkippedCall(call_id="a"))
            await handle.signal(AgentTask.skip_call, SkippedCall(call_id="b"))
            await handle.result()
        else:
            await handle.cancel()
            await until_canceled(handle)
    assert [call.call.id for call in ports.tools.calls if call.abandoned] == ["a"]
