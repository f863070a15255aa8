"""People in the loop: calls that wait for an answer, and what each kind of answer does."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import JsonValue
from temporalio import activity
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.calls import (
    CallModelInput,
    PublishInput,
    RunToolInput,
    SaveContextResult,
    ToolReply,
)
from everloop.workflows.contract.messages import AssistantMessage, DataPart, TextPart, UserMessage, text_of
from everloop.workflows.contract.questions import WITHHELD, Approval, ApproverAnswer, Question, QuestionKind
from everloop.workflows.contract.tasks import AgentSpec, Identity, TaskState
from tests.support.fake_ports import (
    CountingTools,
    FakePorts,
    RecordingPublisher,
    ScriptedModel,
    answer,
    asks,
)
from tests.workflows.conftest import StartTask, current_details, say, user


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


def naming(text: str, question: str) -> UserMessage:
    return user(text).model_copy(update={"metadata": {"question": question}})


async def test_a_question_parks_the_task_until_it_is_answered(start_task: StartTask) -> None:
    """The status shows the question to people and programs; the call comes again with the answer."""
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


async def test_each_call_goes_its_own_way(start_task: StartTask) -> None:
    """A question is shown while other calls run, and its call goes on with the answer while others wait."""
    ports = asking("a", "b", "c", a={}, c={"kind": QuestionKind.CLARIFICATION})

    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        await say(handle, naming("Blue", "c"))
        await ports.publish.until_open(1, now=True)
        await say(handle, user("no"))
        await handle.result()

    shown = [status for status in ports.publish.statuses if status.state.is_interrupted]
    assert ["a", "c"] in [[question.id for question in status.questions] for status in shown]
    assert [len(status.received) for status in shown if [q.id for q in status.questions] == ["a"]][-1:] == [1]
    ran = [(call.call.id, [given.value for given in call.answers]) for call in ports.tools.calls]
    assert sorted(ran[:3]) == [("a", []), ("b", []), ("c", [])]
    assert ran[3:] == [("c", ["Blue"]), ("a", [False])]


class HeldUp(RecordingPublisher):
    """Holds up what is published, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.go_on = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        self.held.set()
        await self.go_on.wait()
        return await super().publish(call)


async def test_what_was_said_before_the_question_was_seen_does_not_answer_it(start_task: StartTask) -> None:
    """The client saw a task that works: its OK is a remark, and the question stays open."""
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
    """The oldest is asked, and stays the one that is asked, whatever else comes up; the status says so."""
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
    """Its time runs out, and answers count, while the other call runs; the results keep their order."""
    timeout = 0.2 if by == "time" else None
    asked = asking("asks", asks={"timeout": timeout}).tools
    tools = _GatedTools(asked.reply)
    ports = FakePorts(ScriptedModel(asks(("slow", "slow"), ("asks", "x")), answer("done")), tools)

    async with start_task(ports) as handle:
        await ports.publish.until_open(1)
        if by == "client":
            await say(handle, user("yes"))
        elif by == "operator":
            await handle.signal(AgentTask.approve, Approval(call_id="asks", approved=True))
        await tools.until_called("asks", 2)
        assert not tools.may_end.is_set()
        tools.may_end.set()
        await handle.result()
        transcript = await handle.query(AgentTask.transcript)

    assert [call.call.id for call in tools.calls] == ["asks", "asks", "slow"]
    results = [message for message in transcript.messages if message.role == "tool"]
    assert [message.call_id for message in results] == ["slow", "asks"]


async def test_a_call_that_waits_holds_no_slot(start_task: StartTask) -> None:
    """With one slot for all, three calls that ask are all asked about at once."""
    names_ = ("a", "b", "c")
    ports = asking(*names_, a={}, b={}, c={})

    async with start_task(ports, AgentSpec(id="agent", max_parallel_tools=1)) as handle:
        await ports.publish.until_open(3)
        for name in reversed(names_):
            await say(handle, naming("yes", name))
        await handle.result()

    assert ports.tools.most_at_once == 1


def approver(**said: object) -> ApproverAnswer:
    """What somebody says whom question `a` asks in the owner's place."""
    known = {"question_id": "a", "scope": "tasks:approve", "approved": True, "approver": "ann"}
    who = {"owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
    return ApproverAnswer.model_validate({**known, **who, **said})


BOSS: dict[str, object] = {"purpose": "approval", "approvers": "tasks:approve"}


async def test_an_approval_may_be_somebody_elses(start_task: StartTask) -> None:
    """The owner reads who is asked, and cannot answer; the history tells who did, and when."""
    ports = asking("a", "b", a=BOSS, b={"kind": "clarification", "text": "Why?"})

    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        owners = user("yes").model_copy(update={"answers": "a"})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.add_message, owners)
        await handle.execute_update(AgentTask.take_approvers_answer, approver(note="go"))
        await say(handle, user("Because.").model_copy(update={"answers": "b"}))
        await handle.result()
        view = await handle.query(AgentTask.view)

    assert isinstance(refused.value.cause, ApplicationError)
    assert "this waits for somebody with the scope tasks:approve" in refused.value.cause.message
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
    """Nobody answers for a scope that is not asked, nor what they have asked for themselves."""
    ports = asking("a", a=BOSS)
    began = {"identity": Identity(scheme="apiKey", subject="client")}

    async with start_task(ports, changes=began) as handle:
        await ports.publish.until_asked()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.take_approvers_answer, approver(**said))
        await handle.signal(AgentTask.approve, Approval(approved=True))
        await handle.result()

    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.INVALID_ANSWER
    assert words in refused.value.cause.message
    assert [given.by for given in ports.tools.calls[1].answers] == ["operator"]


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


async def test_an_operator_answers_by_signal(start_task: StartTask) -> None:
    """A signal that fits no question changes nothing and is shown; the next one answers."""
    ports = asking("a", a={})

    async with start_task(ports) as handle:
        await ports.publish.until_asked()
        await handle.signal(AgentTask.approve, Approval(call_id="z", approved=True))
        assert "`approve` was refused: no call 'z' waits; waiting: a" in await current_details(handle)
        await handle.signal(AgentTask.approve, Approval(call_id="a", approved=False, note="too dear"))
        await handle.result()

        details = await current_details(handle)

    (given,) = ports.tools.calls[1].answers
    assert (given.approved, given.note, given.by) == (False, "too dear", "operator")
    assert "refused" not in details


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


async def test_a_text_part_and_a_data_part_name_their_question(start_task: StartTask) -> None:
    """Clients without metadata put the name beside the answer."""
    ports = asking("a", "b", a={"kind": "clarification"}, b={"kind": "clarification"})
    message = user("").model_copy(
        update={"parts": (TextPart(text="see"), DataPart(data={"question": "b", "answer": 7}))}
    )

    async with start_task(ports) as handle:
        await ports.publish.until_open(2)
        await say(handle, message)
        await ports.publish.until_open(1, now=True)
        await ports.tools.until_called("b", 2)
        await handle.cancel()

    assert [(call.call.id, call.answers[0].value) for call in ports.tools.calls[2:]] == [("b", 7)]
