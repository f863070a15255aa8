"""Agents that decide whether a message becomes a task, and tasks that a schedule began."""

import asyncio
from datetime import UTC, datetime

import pytest

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import CREATE_TASK, CallModelInput
from everloop.workflows.contract.messages import AssistantMessage, text_of
from everloop.workflows.contract.names import unique_message_id
from everloop.workflows.contract.tasks import AgentSpec, TaskState
from tests.support.fakes.ports import FakePorts, ScriptedModel, answer, asks, fails
from tests.workflows.conftest import StartTask, user

AUTO = AgentSpec(id="agent", routing="auto", memory=Memory())


class Held:
    """A reply that waits until a test releases it."""

    def __init__(self, reply: AssistantMessage) -> None:
        self.begun, self.gate, self._reply = asyncio.Event(), asyncio.Event(), reply

    async def __call__(self, _call: CallModelInput) -> AssistantMessage:
        self.begun.set()
        await self.gate.wait()
        return self._reply


async def test_an_answer_at_once_is_no_task(start_task: StartTask) -> None:
    """All waiting callers get the message; clients get no task and no event of one."""
    ports = FakePorts(ScriptedModel(answer("Four.")))
    async with start_task(ports, AUTO) as handle:
        route = await handle.execute_update(AgentTask.wait_for_route)
        result = await handle.result()
        view = await handle.query(AgentTask.view)
    assert route.message is not None
    assert text_of(route.message.parts) == "Four."
    assert (result.state, result.message) == (TaskState.COMPLETED, route.message)
    assert view.is_hidden
    assert (ports.publish.events, ports.publish.opened) == ([], [])
    assert [call.routing for call in ports.model.calls] == [True]


async def test_a_created_task_is_shown_before_its_work_begins(start_task: StartTask) -> None:
    """The client gets the task from the decision on; each deciding call has a result, the work its tools."""
    ports = FakePorts(
        ScriptedModel(
            asks(("c", CREATE_TASK), ("d", "x"), text="Let me see."), asks(("a", "x")), answer("done")
        )
    )

    async with start_task(ports, AUTO) as handle:
        route = await handle.execute_update(AgentTask.wait_for_route)
        result = await handle.result()
        view = await handle.query(AgentTask.view)

    assert route.message is None
    assert (result.state, result.message) == (TaskState.COMPLETED, None)
    assert not view.is_hidden
    assert [view.status.state for view in ports.publish.opened] == [TaskState.SUBMITTED]
    assert [call.routing for call in ports.model.calls] == [True, False, False]
    results = [stored.result for stored in ports.tools.results]
    assert [(r.name, r.outcome) for r in results] == [(CREATE_TASK, "ok"), ("x", "invalid")]
    assert len(ports.publish.remembered) == 1


async def test_a_message_whose_decision_fails_is_a_failed_task(start_task: StartTask) -> None:
    """The client needs an end: the task is shown with the error."""
    refused = fails(failures.MODEL_REFUSED, "no such model")
    ports = FakePorts(ScriptedModel(refused))
    async with start_task(ports, AUTO) as handle:
        route = await handle.execute_update(AgentTask.wait_for_route)
        view = await handle.query(AgentTask.view)
    assert route.message is None
    assert (view.status.state, view.is_hidden) == (TaskState.FAILED, False)
    assert len(ports.publish.opened) == 1


@pytest.mark.parametrize(
    ("text", "said"), [("Half of", ["Half of", "[the answer was cut off]"]), ("", ["the answer was cut off"])]
)
async def test_a_message_says_how_its_reply_ended(start_task: StartTask, text: str, said: list[str]) -> None:
    """No status exists for it."""
    cut = answer(text).model_copy(update={"reason": failures.REPLY_CUT, "closing": "the answer was cut off"})
    async with start_task(FakePorts(ScriptedModel(cut)), AUTO) as handle:
        route = await handle.execute_update(AgentTask.wait_for_route)
        await handle.result()
    assert route.message
    assert [text_of((part,)) for part in route.message.parts] == said
    assert route.message.metadata == {"reason": failures.REPLY_CUT}


async def test_a_model_that_waits_for_an_operator_shows_the_task(start_task: StartTask) -> None:
    """Otherwise an operator could not find it to resume; the later reply is work on the task."""
    refused = fails(failures.MODEL_REFUSED, "no credit")
    ports = FakePorts(ScriptedModel(refused, answer("Four.")))
    agent = AgentSpec(id="agent", routing="auto", on_model_failure="wait")
    async with start_task(ports, agent) as handle:
        route = await handle.execute_update(AgentTask.wait_for_route)
        await handle.signal(AgentTask.resume)
        result = await handle.result()
    assert route.message is None
    assert (result.state, result.message, result.excerpt) == (TaskState.COMPLETED, None, "Four.")
    assert len(ports.publish.opened) == 1
    assert [call.routing for call in ports.model.calls] == [True, False]


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def test_a_scheduled_task_shows_itself_and_pins_its_agent(start_task: StartTask) -> None:
    """It begins when it runs, in a context of its own, with the agent's current definition."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.spec = AgentSpec(id="any", model="newest", version="2", memory=Memory())
    begun = AgentSpec(id="reporter")
    changes = {"scheduled": True, "context_id": "", "created_at": LONG_AGO}
    async with start_task(ports, begun, changes) as handle:
        result = await handle.result()
        view = await handle.query(AgentTask.view)
    assert result.state is TaskState.COMPLETED
    (opened,) = ports.publish.opened
    assert opened.context_id == names.derive_context_id(handle.id)
    assert opened.created_at > LONG_AGO
    assert [message.message_id for message in opened.history] == [handle.id]
    (call,) = ports.model.calls
    assert (call.model, call.task.agent_version, call.task.context_id) == ("newest", "2", opened.context_id)
    assert view.agent_id == "reporter"
    assert [(p.loads_agent, p.lists_tools) for p in ports.agents.prepared] == [(True, False)]


async def test_a_message_that_comes_while_the_model_decides_needs_a_task(start_task: StartTask) -> None:
    """After a reset a client may have the task already: its later messages are not dropped."""
    decides = Held(answer("Four."))
    ports = FakePorts(ScriptedModel(decides, answer("Four, and five.")))
    async with start_task(ports, AUTO) as handle:
        await decides.begun.wait()
        await handle.execute_update(AgentTask.add_message, user("and 2 + 3?"))
        decides.gate.set()
        result = await handle.result()
    assert (result.message, result.excerpt) == (None, "Four, and five.")
    assert len(ports.publish.opened) == 1


async def test_a_marked_message_is_taken_in_once(start_task: StartTask) -> None:
    """The mark of a message counts, for example an Idempotency-Key, whatever its messageId."""
    works = Held(answer("first"))
    ports = FakePorts(ScriptedModel(works, answer("all answered")))
    async with start_task(ports, AgentSpec(id="agent", deduplicate=False)) as handle:
        await works.begun.wait()
        for name in ("m1", "m2"):
            marked = user("again").model_copy(update={"message_id": unique_message_id(name, "k")})
            await handle.execute_update(AgentTask.add_message, marked)
        works.gate.set()
        await handle.result()
    assert len(ports.model.calls[1].new) == 1
