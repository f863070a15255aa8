"""Answers to a question, from clients and operators: accepted ones and refused ones."""

import asyncio
import re

import pytest

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import AssistantMessage, DataPart, UserMessage, text_of
from everloop.workflows.contract.questions import (
    WITHHELD,
    ApproveInput,
    ApproverAnswer,
    Question,
    QuestionKind,
)
from everloop.workflows.contract.tasks import Identity
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask, current_details, refusal_of, say, user
from tests.workflows.people.asking import asking, naming, questions


async def test_an_operator_names_no_call_where_only_one_waits(start_task: StartTask) -> None:
    """If several wait, the details name each."""
    ports = asking("a", "b", a={}, b={})
    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        await handle.signal(AgentTask.approve, ApproveInput(approved=True))
        several = await current_details(handle)
        await handle.signal(AgentTask.approve, ApproveInput(call_id="a", approved=False))
        await handle.signal(AgentTask.approve, ApproveInput(approved=True, note="fine"))
        await handle.result()
    assert "`approve` was refused: call_id is missing; waiting: " in several
    given = {call.call.id: call.answers[0].approved for call in ports.tools.calls if call.answers}
    assert given == {"a": False, "b": True}


@pytest.mark.parametrize(("kind", "approved"), [("confirmation", True), ("auth", False)])
async def test_the_signal_that_the_details_show_answers(
    start_task: StartTask, kind: str, *, approved: bool
) -> None:
    """The signal approves without changes; for a secret it declines, because signals are in the history."""
    ports = asking("a", a={"kind": kind})
    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        shown, *_ = re.findall("```json\n(.*)\n```", await current_details(handle))
        await handle.signal(AgentTask.approve, ApproveInput.model_validate_json(shown))
        await handle.result()
    (given,) = ports.tools.calls[1].answers
    assert (given.approved, given.by) == (approved, "operator")


REFUSED: dict[str, tuple[dict[str, dict[str, object]], UserMessage, str]] = {
    "no answer": ({"a": {}}, user("Perhaps"), 'answer "yes" or "no"'),
    "no option": ({"a": {"kind": "selection", "options": ("red", "blue")}}, user("green"), "red, blue"),
    "another one": ({"a": {}}, naming("yes", "z"), "no question 'z' is open"),
    "a secret": ({"a": {"kind": "auth"}}, user("hunter2"), "kept out of the task's history"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_answer_is_refused(start_task: StartTask, case: str) -> None:
    """The failure has the expected form, and the question stays open."""
    asked, message, expected = REFUSED[case]
    ports = asking(*asked, **asked)
    async with start_task(ports) as handle:
        await ports.publish.until_open(len(asked))
        refused = await refusal_of(say(handle, message))
        progress = await handle.query(AgentTask.progress)
    assert refused.type == failures.INVALID_ANSWER
    assert expected in refused.message
    assert "hunter2" not in refused.message
    assert len(progress.questions) == len(asked)
    assert len(ports.tools.calls) == len(asked)


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
    """It does not become a message for the model."""
    gate = asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        await gate.wait()
        return answer("done")

    tools = CountingTools(reply=questions(a={"kind": "auth", "timeout": 0.1}))
    ports = FakePorts(ScriptedModel(asks(("a", "x")), slow), tools)
    async with start_task(ports) as handle:
        await ports.model.until_asked(2)
        refused = await refusal_of(handle.execute_update(AgentTask.add_message, LATE[case]))
        gate.set()
        await handle.result()
    assert refused.type == failures.INVALID_ANSWER


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


def approver(**said: object) -> ApproverAnswer:
    """A message of a caller whom question `a` asks instead of the owner."""
    known = {"question_id": "a", "scope": "tasks:approve", "approved": True, "approver": "ann"}
    who = {"owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
    return ApproverAnswer.model_validate({**known, **who, **said})


BOSS: dict[str, object] = {"purpose": "approval", "approvers": "tasks:approve"}


async def test_an_approval_may_be_somebody_elses(start_task: StartTask) -> None:
    """The owner reads the required scope, and cannot answer; the history has the approver and the time."""
    ports = asking("a", "b", a=BOSS, b={"kind": "clarification", "text": "Why?"})

    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        owners = user("yes").model_copy(update={"answers": "a"})
        refused = await refusal_of(handle.execute_update(AgentTask.add_message, owners))
        await handle.execute_update(AgentTask.take_approvers_answer, approver(note="go"))
        await say(handle, user("Because.").model_copy(update={"answers": "b"}))
        await handle.result()
        view = await handle.query(AgentTask.view)

    assert "this waits for somebody with the scope tasks:approve" in refused.message
    asked = next(status for status in ports.publish.statuses if len(status.questions) == 2)
    assert asked.message
    waits = "May I?\n(this waits for somebody with the scope tasks:approve; nobody else can answer it)"
    assert text_of(asked.message.parts) == f"Why?\n(answer in a text or data part)\n\n{waits}"
    assert {q.id: q.asked_at is not None for q in asked.questions} == {"a": True, "b": False}
    (given,) = next(call.answers for call in ports.tools.calls if call.call.id == "a" and call.answers)
    assert (given.approved, given.note, given.by, given.approver) == (True, "go", "approver", "ann")
    (told,) = [message for message in view.history if "approval" in message.metadata]
    assert text_of(told.parts) == "approved by ann (tasks:approve): go"
    assert told.role == "agent"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"question_id": "z"}, "no question 'z' is open any more"),
        ({"scope": "refunds:approve"}, "for those with the scope refunds:approve"),
        ({"owner": "owner", "subject": "client"}, "these credentials began the task"),
    ],
)
async def test_an_approver_has_to_be_asked(
    start_task: StartTask, said: dict[str, object], words: str
) -> None:
    """A caller answers neither for a scope that is not asked, nor a request of their own."""
    ports = asking("a", a=BOSS)
    began = {"identity": Identity(scheme="apiKey", subject="client")}
    async with start_task(ports, changes=began) as handle:
        await ports.publish.until_asked()
        refused = await refusal_of(handle.execute_update(AgentTask.take_approvers_answer, approver(**said)))
        await handle.signal(AgentTask.approve, ApproveInput(approved=True))
        await handle.result()
    assert refused.type == failures.INVALID_ANSWER
    assert words in refused.message
    assert [given.by for given in ports.tools.calls[1].answers] == ["operator"]
