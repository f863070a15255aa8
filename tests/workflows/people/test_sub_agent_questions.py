"""What sub-agents ask is asked at the client's task, and the answers find their way down."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.worker import Worker

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import (
    CallModelInput,
    PublishInput,
    RunToolInput,
    SaveContextResult,
    ToolReply,
)
from everloop.workflows.contract.events import StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    text_of,
)
from everloop.workflows.contract.names import is_child_task_id
from everloop.workflows.contract.questions import WITHHELD, Approval, ApproverAnswer, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskRef, TaskState, ToolSpec
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    RecordingPublisher,
    ScriptedModel,
    answer,
    asks,
)
from tests.support.memory.fold import FoldedTask
from tests.workflows.conftest import Handle, StartTask, run, say, unique_queue, user
from tests.workflows.people.asking import HeldUp
from tests.workflows.people.writers import PARENT, asks_writer, writers_task


@pytest.fixture(params=[1000, 0], ids=["cached", "always_replayed"])
def cached(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def question(call: RunToolInput, **fields: object) -> Question:
    asked = {"id": call.call.id, "kind": QuestionKind.CONFIRMATION, "text": "May I?", "call": call.call}
    return Question.model_validate({**asked, **fields})


def asking(*names: str, **fields: object) -> Callable[[RunToolInput], ToolReply | None]:
    """Let these tools (by default the one called ask) ask once, and then give a result."""

    def reply(call: RunToolInput) -> ToolReply | None:
        asks_first = call.call.name in (names or ("ask",)) and not call.answers
        return question(call, **fields) if asks_first else None

    return reply


def of(ports: FakePorts, task_id: str) -> list[TaskState]:
    """The statuses that a task has published itself."""
    return [status.state for id_, status in ports.publish.by_task if id_ == task_id]


async def until_asked_by(ports: FakePorts, handle: Handle, times: int = 1) -> None:
    await ports.publish.until(
        lambda: sum(state.is_interrupted for state in of(ports, handle.id)) >= times,
    )


def one_question(**fields: object) -> FakePorts:
    model = ScriptedModel(asks_writer("w"), asks(("q", "ask")), answer("A poem."), answer("done"))
    return FakePorts(model, CountingTools(reply=asking(**fields)))


async def test_a_question_of_a_sub_agent_is_answered_at_the_parent(start_task: StartTask) -> None:
    """The client sees it at its own task, and answers there; the call goes on with the answer."""
    ports = one_question()
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        view = await handle.query(AgentTask.view)
        await say(handle, user("yes"))
        result = await handle.result()
    assert result.excerpt == "done"
    (asked,) = view.status.questions
    assert (asked.id, asked.text, view.status.state) == ("w/q", "May I?", TaskState.INPUT_REQUIRED)
    (given,) = ports.tools.calls[-1].answers
    assert (given.question_id, given.approved, given.by) == ("q", True, "user")
    assert of(ports, handle.id) == [TaskState.INPUT_REQUIRED, TaskState.WORKING, TaskState.COMPLETED]


async def test_an_operator_answers_at_the_parent(start_task: StartTask) -> None:
    """The signal that the Temporal UI shows names the question."""
    ports = one_question()
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        await handle.signal(AgentTask.approve, Approval(call_id="w/q", approved=False, note="no"))
        await handle.result()
    (given,) = ports.tools.calls[-1].answers
    assert (given.approved, given.note, given.by) == (False, "no", "operator")


async def test_a_secret_is_named_on_its_way_down(start_task: StartTask) -> None:
    """The answer holds no secret: it names the message that brought it, and what the tool calls it."""
    ports = one_question(kind=QuestionKind.AUTH, secret_name="token")
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        view = await handle.query(AgentTask.view)
        secret = user("").model_copy(update={"metadata": {WITHHELD: True}, "parts": ()})
        await say(handle, secret)
        await handle.result()
    assert view.status.state is TaskState.AUTH_REQUIRED
    (given,) = ports.tools.calls[-1].answers
    assert (given.secret_name, given.message_id, given.value) == ("token", secret.message_id, None)


async def test_a_question_that_runs_out_of_time_is_taken_back(start_task: StartTask) -> None:
    """The sub-agent keeps the time; the parent's client is told that the task goes on."""
    ports = one_question(kind=QuestionKind.CLARIFICATION, timeout=0.2, default="a sonnet")
    result = await run(start_task(ports, PARENT))
    assert result.excerpt == "done"
    (given,) = ports.tools.calls[-1].answers
    assert (given.value, given.by) == ("a sonnet", "timeout")
    states = of(ports, ports.model.calls[0].task.task_id)
    assert TaskState.INPUT_REQUIRED in states
    assert states[states.index(TaskState.INPUT_REQUIRED) + 1] is TaskState.WORKING


async def test_two_sub_agents_ask_at_once(start_task: StartTask) -> None:
    """Each answer goes to the one that it names, although their own ids are the same."""

    async def reply(call: CallModelInput) -> AssistantMessage:
        if "/" in call.task.task_id:
            return asks(("q", "ask")) if call.length == 1 else answer("A poem.")
        return asks_writer("v", "w") if call.length == 1 else answer("done")

    model = ScriptedModel(*[reply] * 6)
    ports = FakePorts(model, CountingTools(reply=asking(kind=QuestionKind.CLARIFICATION)))

    async with start_task(ports, PARENT) as handle:
        await ports.publish.until(lambda: any(len(s.questions) == 2 for _, s in ports.publish.by_task))
        for question_id, text in (("w/q", "for w"), ("v/q", "for v")):
            named = user(text).model_copy(update={"metadata": {"question": question_id}})
            await say(handle, named)
        result = await handle.result()

    assert result.excerpt == "done"
    answered = {
        call.task.task_id.rpartition("/")[2].partition("-")[0]: call.answers[0].value
        for call in ports.tools.calls
        if call.answers
    }
    assert answered == {"v": "for v", "w": "for w"}


async def test_a_question_comes_up_from_two_levels_below(start_task: StartTask) -> None:
    """Each task on the way shows it, and hands the answer on."""
    ports = FakePorts(
        ScriptedModel(
            asks_writer("w"),
            asks_writer("x"),
            asks(("q", "ask")),
            answer("deep"),
            answer("deeper"),
            answer("done"),
        ),
        CountingTools(reply=asking()),
    )
    ports.agents.spec = PARENT

    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        view = await handle.query(AgentTask.view)
        await say(handle, user("yes"))
        result = await handle.result()

    assert [asked.id for asked in view.status.questions] == ["w/x/q"]
    assert result.excerpt == "done"
    assert [given.question_id for given in ports.tools.calls[-1].answers] == ["q"]


async def test_what_a_sub_agent_asks_of_others_is_answered_at_the_clients_task(start_task: StartTask) -> None:
    """By those with the scope, and by nobody else; the answer finds its way down."""
    ports = FakePorts(
        ScriptedModel(asks_writer("w"), asks(("q", "ask")), answer("A poem."), answer("done")),
        CountingTools(reply=asking(approvers="tasks:approve", purpose="approval")),
    )
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        who = {"approver": "ann", "owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
        said = {"question_id": "w/q", "scope": "tasks:approve", "approved": True, **who}
        with pytest.raises(WorkflowUpdateFailedError):
            await say(handle, user("yes"))
        await handle.execute_update(AgentTask.take_approvers_answer, ApproverAnswer.model_validate(said))
        await handle.result()
    (given,) = ports.tools.calls[-1].answers
    assert (given.question_id, given.approved, given.by, given.approver) == ("q", True, "approver", "ann")


async def test_cancelling_a_task_whose_sub_agent_asks(start_task: StartTask, client: Client) -> None:
    """Both end, and nothing is left open."""
    ports = one_question()
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        view = await handle.query(AgentTask.view)
        child = await client.get_workflow_handle_for(AgentTask.run, writers_task(handle.id)).query(
            AgentTask.view
        )
    assert (view.status.state, view.status.questions) == (TaskState.CANCELED, ())
    assert (child.status.state, child.status.questions) == (TaskState.CANCELED, ())


async def test_an_answer_at_the_sub_agents_own_task_counts_too(start_task: StartTask, client: Client) -> None:
    """The parent's client is told that nothing is asked any more."""
    ports = one_question()
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        message = user("yes")
        child = client.get_workflow_handle_for(AgentTask.run, writers_task(handle.id))
        await say(child, message)
        result = await handle.result()
    assert result.excerpt == "done"
    states = of(ports, handle.id)
    assert states[states.index(TaskState.INPUT_REQUIRED) + 1] is TaskState.WORKING


async def test_a_tool_of_the_parent_runs_on_while_a_sub_agent_asks(start_task: StartTask) -> None:
    """Its own question waits beside the other; both are answered by name."""
    calls = (*asks_writer("w").tool_calls, ToolCall(id="o", name="own", arguments="{}"))
    ports = FakePorts(
        ScriptedModel(
            AssistantMessage(tool_calls=calls), asks(("q", "ask")), answer("A poem."), answer("done")
        ),
        CountingTools(reply=asking("ask", "own", kind=QuestionKind.CLARIFICATION)),
    )
    async with start_task(ports, PARENT) as handle:
        await ports.publish.until(lambda: any(len(s.questions) == 2 for _, s in ports.publish.by_task))
        for question_id in ("o", "w/q"):
            await say(handle, user("so").model_copy(update={"metadata": {"question": question_id}}))
        result = await handle.result()
    assert result.excerpt == "done"


async def test_a_call_of_a_sub_agent_may_need_an_approval(start_task: StartTask) -> None:
    """It is asked for as with any tool; the sub-agent begins once somebody has said yes."""
    ports = FakePorts(ScriptedModel(asks_writer("w"), answer("A poem."), answer("done")))
    asked = {"id": "w", "kind": QuestionKind.CONFIRMATION, "purpose": "approval", "text": "May I?"}
    ports.agents.before = lambda load: {} if load.answers else {"question": {**asked, "call": load.call}}
    async with start_task(ports, PARENT) as handle:
        await ports.publish.until_asked()
        assert len(ports.model.calls) == 1
        await say(handle, user("yes"))
        result = await handle.result()
    assert result.excerpt == "done"
    assert [answer_.approved for answer_ in ports.agents.loaded[-1].answers] == [True]
    assert [stored.result.content for stored in ports.tools.results] == ["A poem."]


async def test_a_call_of_a_sub_agent_that_is_vetoed_starts_none(start_task: StartTask) -> None:
    """The model reads why."""
    ports = FakePorts(ScriptedModel(asks_writer("w"), answer("done")))
    veto = ToolMessage(call_id="w", name="writer", content="writers are off", outcome="rejected")
    ports.agents.before = lambda _: {"refused": veto}
    await run(start_task(ports, PARENT))
    assert [stored.result for stored in ports.tools.results] == [veto]
    assert {call.task.task_id for call in ports.model.calls} == {ports.model.calls[0].task.task_id}


async def test_a_question_goes_with_the_sub_agent_that_asked(start_task: StartTask, client: Client) -> None:
    """Although it ends while its question is being shown; the parent's own question is asked after it."""
    ports = FakePorts(
        ScriptedModel(asks_writer("w"), asks(("q", "ask")), asks(("o", "ask")), answer("done")),
        CountingTools(reply=asking()),
    )
    ports.publish = publisher = HeldUp()
    async with start_task(ports, PARENT) as handle:
        await publisher.held.wait()
        await client.get_workflow_handle(writers_task(handle.id)).terminate()
        publisher.go_on.set()
        await publisher.until(
            lambda: any([q.id for q in status.questions] == ["o"] for _, status in publisher.by_task)
        )
        await say(handle, user("yes"))
        result = await handle.result()
    assert result.excerpt == "done"


class Folding(RecordingPublisher):
    """Folds what the client's task publishes into its view; `seen` is what reaches its stream."""

    def __init__(self) -> None:
        super().__init__()
        self.view = FoldedTask()
        self.seen: list[TaskEvent] = []

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        self.take(call.task, call.events)
        return await super().publish(call)

    def take(self, task: TaskRef, events: Sequence[TaskEvent]) -> None:
        if not is_child_task_id(task.task_id):
            self.seen += self.view.publish(task.run_id, events)


async def test_a_status_on_a_call_that_has_not_begun_is_not_overtaken(
    start_task: StartTask, client: Client
) -> None:
    """No worker takes the call that carries what the model said; a sub-agent of the same reply asks."""
    slow = unique_queue()
    agent = PARENT.model_copy(update={"tools": {**PARENT.tools, "slow": ToolSpec(task_queue=slow)}})
    calls = (*asks(("s", "slow")).tool_calls, *asks_writer("w").tool_calls)
    both = AssistantMessage(text="I will do both.", tool_calls=calls)
    ports = FakePorts(
        ScriptedModel(both, asks(("q", "ask")), answer("A poem."), answer("done")),
        CountingTools(reply=asking()),
    )
    ports.publish = publisher = Folding()

    async with start_task(ports, agent) as handle:
        await until_asked_by(ports, handle)
        shown = await handle.query(AgentTask.view)
        publisher.view.create(shown.model_copy(update={"history": shown.history[:1]}))
        live, seen = publisher.view.view, list(publisher.seen)
        await say(handle, user("yes"))
        async with Worker(client, task_queue=slow, activities=[ports.tools.run_tool]):
            await handle.result()
        (late,) = [call for call in ports.tools.calls if call.call.id == "s"]
        publisher.take(late.task, late.statuses)
        ended = await handle.query(AgentTask.view)

    said = [event.message for event in seen if isinstance(event, StatusChanged) and event.message]
    assert text_of(said[0].parts) == "I will do both."
    assert live
    assert live == shown
    assert [text_of(message.parts) for message in live.history] == ["Hello", "I will do both."]
    assert late.statuses  # it came with what was said long ago, which the view drops
    assert publisher.view.view
    assert publisher.view.view.history == ended.history


async def test_an_answered_question_is_not_shown_any_longer(start_task: StartTask) -> None:
    """The task's own question was shown with a sub-agent's; a slow call keeps the round open."""
    slow = asyncio.Event()
    calls = (*asks_writer("w").tool_calls, *asks(("o", "own"), ("s", "slow")).tool_calls)
    model = ScriptedModel(
        AssistantMessage(tool_calls=calls), asks(("q", "ask")), answer("A poem."), answer("done")
    )

    class Tools(CountingTools):
        @activity.defn
        async def run_tool(self, call: RunToolInput) -> ToolReply:
            while call.call.name == "slow" and not slow.is_set():
                activity.heartbeat()
                await asyncio.sleep(0.05)
            return await super().run_tool(call)

    ports = FakePorts(
        model,
        Tools(reply=asking("ask", "own", kind=QuestionKind.CLARIFICATION)),
    )

    async with start_task(ports, PARENT) as handle:
        await ports.publish.until(lambda: any(len(s.questions) == 2 for _, s in ports.publish.by_task))
        for question_id in ("o", "w/q"):
            await say(handle, user("so").model_copy(update={"metadata": {"question": question_id}}))
        await ports.publish.until(lambda: of(ports, handle.id)[-1:] == [TaskState.WORKING])
        slow.set()
        result = await handle.result()

    assert result.excerpt == "done"


async def test_a_calls_time_runs_out_beside_a_sub_agent_that_asks(start_task: StartTask) -> None:
    """The call does not wait for what people say to the sub-agent, which may take days."""
    calls = (*asks_writer("w").tool_calls, *asks(("o", "own")).tool_calls)
    model = ScriptedModel(
        AssistantMessage(tool_calls=calls), asks(("q", "ask")), answer("A poem."), answer("done")
    )

    def reply(call: RunToolInput) -> ToolReply | None:
        asked = {"ask": {}, "own": {"timeout": 0.5}}[call.call.name]
        return None if call.answers else question(call, **asked)

    ports = FakePorts(model, CountingTools(reply=reply))

    async with start_task(ports, PARENT) as handle:
        await ports.tools.until_called("o", 2)
        (still_open,) = (await handle.query(AgentTask.progress)).questions
        await say(handle, user("yes").model_copy(update={"metadata": {"question": "w/q"}}))
        result = await handle.result()

    assert still_open.id == "w/q"
    assert [answer.by for call in ports.tools.calls if call.call.id == "o" for answer in call.answers] == [
        "timeout"
    ]
    assert result.excerpt == "done"
