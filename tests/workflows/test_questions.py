"""People in the loop: calls that wait for an answer, and what each kind of answer does."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import JsonValue
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support.fake_ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import Handle, StartTask, user
from workflows.agent_task import AgentTask
from workflows.contract import failures, names
from workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from workflows.contract.messages import AssistantMessage, DataPart, TextPart, UserMessage, text_of
from workflows.contract.questions import WITHHELD, Approval, Question, QuestionKind
from workflows.contract.tasks import TaskState


def questions(**asked: dict[str, object]) -> Callable[[RunToolInput], ToolReply | None]:
    """Let the calls of these ids ask once each, before they give a result."""

    def reply(call: RunToolInput) -> ToolReply | None:
        fields = asked.get(call.call.id)
        if fields is None or call.answers:
            return None
        kind = fields.get("kind", QuestionKind.CONFIRMATION)
        return Question.model_validate(
            {"id": call.call.id, "kind": kind, "text": "May I?", "call": call.call, **fields}
        )

    return reply


def asking(*calls: str, **asked: dict[str, object]) -> FakePorts:
    """A model that asks for these calls, then answers."""
    tools = CountingTools(reply=questions(**asked))
    return FakePorts(ScriptedModel(asks(*((call, "x") for call in calls)), answer("done")), tools)


async def say(handle: Handle, message: UserMessage) -> None:
    await handle.execute_update(AgentTask.add_message, message, id=message.message_id)


def naming(text: str, question: str) -> UserMessage:
    return user(text).model_copy(update={"metadata": {"question": question}})


async def test_a_question_parks_the_task_until_it_is_answered(start_task: StartTask) -> None:
    """The status shows the question to people and programs; the call comes again with the answer."""
    ports = asking("a", a={})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        description = await handle.describe()
        await say(handle, user("Yes, but be quick"))
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
    assert again.status
    assert (again.status.state, len(again.status.received)) == (TaskState.WORKING, 1)
    assert again.position == 2
    assert [message.role for message in view.history] == ["user", "agent", "user"]
    assert ports.model.calls[1].new == ()


async def test_other_calls_end_before_the_question_is_shown(start_task: StartTask) -> None:
    """One status lists all open questions; each is answered by itself, and only then goes on."""
    ports = asking("a", "b", "c", a={}, c={"kind": QuestionKind.CLARIFICATION})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await say(handle, naming("Blue", "c"))
        await ports.publish.until_asked(2)
        await say(handle, user("no"))
        await handle.result()

    first, second = [status for status in ports.publish.statuses if status.state.is_interrupted]
    assert [question.id for question in first.questions] == ["a", "c"]
    assert [question.id for question in second.questions] == ["a"]
    ran = [(call.call.id, [given.value for given in call.answers]) for call in ports.tools.calls]
    assert sorted(ran[:3]) == [("a", []), ("b", []), ("c", [])]
    assert ran[3:] == [("c", ["Blue"]), ("a", [False])]


REFUSED: dict[str, tuple[dict[str, dict[str, object]], UserMessage, str]] = {
    "no answer": ({"a": {}}, user("Perhaps"), 'answer "yes" or "no"'),
    "no option": ({"a": {"kind": "selection", "options": ("red", "blue")}}, user("green"), "red, blue"),
    "which one?": ({"a": {}, "b": {}}, user("yes"), "2 questions are open"),
    "another one": ({"a": {}}, naming("yes", "z"), "no question 'z' is open"),
    "a secret": ({"a": {"kind": "auth"}}, user("hunter2"), "kept out of the task's history"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_answer_is_refused(start_task: StartTask, case: str) -> None:
    """The failure says what is expected, and the question stays open."""
    asked, message, expected = REFUSED[case]
    ports = asking(*asked, **asked)

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
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


async def test_an_operator_answers_by_signal(start_task: StartTask) -> None:
    """A signal that fits no question changes nothing and is shown; the next one answers."""
    ports = asking("a", a={})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await handle.signal(AgentTask.approve, Approval(call_id="z", approved=True))
        await handle.signal("approve")
        assert "the signal had no input" in await current_details(handle)
        await handle.signal(AgentTask.approve, Approval(call_id="a", approved=False, note="too dear"))
        await handle.result()

        details = await current_details(handle)

    (given,) = ports.tools.calls[1].answers
    assert (given.approved, given.note, given.by) == (False, "too dear", "operator")
    assert "refused" not in details


LATE: dict[str, UserMessage] = {
    "named in metadata": naming("hunter2", "a"),
    "named in data": user("").model_copy(
        update={"parts": (DataPart(data={"question": "a", "answer": "hunter2"}),)}
    ),
    "a secret": user("(a secret was supplied)").model_copy(update={"metadata": {WITHHELD: True}}),
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
            await say(handle, LATE[case])
        gate.set()
        await handle.result()

    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.INVALID_ANSWER


@pytest.mark.parametrize(("default", "approved"), [(None, False), (True, True)])
async def test_a_question_runs_out_of_time(
    start_task: StartTask, default: JsonValue, *, approved: bool
) -> None:
    """The default is the answer then; without one the call counts as rejected."""
    ports = asking("a", a={"timeout": 0.2, "default": default})

    async with start_task(ports) as handle:
        await handle.result()

    (given,) = ports.tools.calls[1].answers
    assert (given.by, given.approved) == ("timeout", approved)


async def test_a_parked_task_is_cancelled(start_task: StartTask) -> None:
    """Nothing of it still runs or waits; its last status says so and asks nothing any more."""
    ports = asking("a", a={})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        view = await handle.query(AgentTask.view)

    assert isinstance(failed.value.cause, CancelledError)
    assert view.status.state is TaskState.CANCELED
    assert view.status.questions == ()
    assert len(ports.tools.calls) == 1


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


async def current_details(handle: Handle) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details


async def test_a_text_part_and_a_data_part_name_their_question(start_task: StartTask) -> None:
    """Clients without metadata put the name beside the answer."""
    ports = asking("a", "b", a={"kind": "clarification"}, b={"kind": "clarification"})
    message = user("").model_copy(
        update={"parts": (TextPart(text="see"), DataPart(data={"question": "b", "answer": 7}))}
    )

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await say(handle, message)
        await ports.publish.until_asked(2)
        await handle.cancel()

    assert [(call.call.id, call.answers[0].value) for call in ports.tools.calls[2:]] == [("b", 7)]
