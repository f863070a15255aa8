"""What counts as an answer to a question, from clients and operators, and what is refused."""

import asyncio

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    CallModelInput,
    RunToolInput,
    ToolReply,
)
from everloop.workflows.contract.messages import AssistantMessage, DataPart, UserMessage
from everloop.workflows.contract.questions import WITHHELD, Approval, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    ScriptedModel,
    answer,
    asks,
)
from tests.workflows.conftest import StartTask, current_details, say, user
from tests.workflows.people.asking import asking, naming, questions


async def test_an_operator_names_no_call_where_only_one_waits(start_task: StartTask) -> None:
    """Where several wait, the details say which."""
    ports = asking("a", "b", a={}, b={})
    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        await handle.signal(AgentTask.approve, Approval(approved=True))
        several = await current_details(handle)
        await handle.signal(AgentTask.approve, Approval(call_id="a", approved=False))
        await handle.signal(AgentTask.approve, Approval(approved=True, note="fine"))
        await handle.result()
    assert "`approve` was refused: call_id is missing; waiting: " in several
    given = {call.call.id: call.answers[0].approved for call in ports.tools.calls if call.answers}
    assert given == {"a": False, "b": True}


REFUSED: dict[str, tuple[dict[str, dict[str, object]], UserMessage, str]] = {
    "no answer": ({"a": {}}, user("Perhaps"), 'answer "yes" or "no"'),
    "no option": ({"a": {"kind": "selection", "options": ("red", "blue")}}, user("green"), "red, blue"),
    "another one": ({"a": {}}, naming("yes", "z"), "no question 'z' is open"),
    "a secret": ({"a": {"kind": "auth"}}, user("hunter2"), "kept out of the task's history"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_answer_is_refused(start_task: StartTask, case: str) -> None:
    """The failure says what is expected, and the question stays open."""
    asked, message, expected = REFUSED[case]
    ports = asking(*asked, **asked)
    async with start_task(ports) as handle:
        await ports.publish.until_open(len(asked))
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await say(handle, message)
        progress = await handle.query(AgentTask.progress)
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.INVALID_ANSWER
    assert expected in refused.value.cause.message
    assert "hunter2" not in refused.value.cause.message
    assert len(progress.questions) == len(asked)
    assert len(ports.tools.calls) == len(asked)


ANSWERS: dict[str, tuple[dict[str, object], UserMessage, JsonValue]] = {
    "option": ({"kind": "selection", "options": ("red", "blue")}, user(" Blue "), "blue"),
    "text": ({"kind": "clarification"}, user("as you like"), "as you like"),
    "json": ({"kind": "data"}, user('{"n": 1}'), {"n": 1}),
    "secret": (
        {"kind": "auth", "secret_name": "git"},
        user("(a secret was supplied)").model_copy(update={"metadata": {WITHHELD: True}}),
        None,
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_each_kind_of_question_takes_its_kind_of_answer(start_task: StartTask, case: str) -> None:
    """The value reaches the call as it was meant; a secret does not pass through here."""
    asked, message, value = ANSWERS[case]
    ports = asking("a", a=asked)
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await say(handle, message)
        await handle.result()
    (given,) = ports.tools.calls[1].answers
    assert (given.value, given.approved) == (value, True)
    state = TaskState.AUTH_REQUIRED if case == "secret" else TaskState.INPUT_REQUIRED
    assert next(status.state for status in ports.publish.statuses if status.questions) is state


LATE: dict[str, UserMessage] = {
    "as the gateway says": user("hunter2").model_copy(update={"answers": "a"}),
    "named in metadata": naming("hunter2", "a"),
    "named in data": user("").model_copy(
        update={"parts": (DataPart(data={"question": "a", "answer": "hunter2"}),)}
    ),
    "a secret": user("(a secret was supplied)").model_copy(
        update={"metadata": {WITHHELD: True}, "answers": "a"}
    ),
}


@pytest.mark.parametrize("case", LATE)
async def test_an_answer_that_comes_too_late_is_refused(start_task: StartTask, case: str) -> None:
    """It does not become something that the model reads."""
    gate = asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        await gate.wait()
        return answer("done")

    tools = CountingTools(reply=questions(a={"kind": "auth", "timeout": 0.1}))
    ports = FakePorts(ScriptedModel(asks(("a", "x")), slow), tools)
    async with start_task(ports) as handle:
        await ports.model.until_asked(2)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.add_message, LATE[case])
        gate.set()
        await handle.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.INVALID_ANSWER


async def test_an_answer_that_is_repeated_counts_once(start_task: StartTask) -> None:
    """The same messageId answers one question, even when the call has asked again meanwhile."""

    def twice(call: RunToolInput) -> ToolReply | None:
        if len(call.answers) == 2:
            return None
        id_ = call.call.id if not call.answers else f"{call.call.id}.2"
        return Question(id=id_, kind=QuestionKind.CONFIRMATION, text="Sure?", call=call.call)

    ports = FakePorts(ScriptedModel(asks(("a", "x")), answer("done")), CountingTools(reply=twice))
    yes = user("yes")
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await say(handle, yes)
        await ports.publish.until_asked(2)
        await handle.execute_update(AgentTask.add_message, yes, id="another-update-id")
        assert len((await handle.query(AgentTask.progress)).questions) == 1
        await say(handle, user("yes"))
        await handle.result()
    assert [len(call.answers) for call in ports.tools.calls] == [0, 1, 2]


async def test_details_show_the_signal_that_answers(start_task: StartTask) -> None:
    """An operator can paste it from the Temporal UI."""
    ports = asking("a", a={})
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        details = await current_details(handle)
        await handle.cancel()
    assert '{"call_id": "a", "approved": true, "note": ""}' in details
    assert "May I?" in details
