"""Questions of sub-agents are asked at the client's task, and the answers are routed down."""

from collections.abc import Callable

from temporalio.client import Client

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import AssistantMessage
from everloop.workflows.contract.questions import WITHHELD, ApproverAnswer, Question, QuestionKind
from everloop.workflows.contract.tasks import TaskState
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import (
    Handle,
    StartTask,
    cached_or_replayed,
    refusal_of,
    run,
    say,
    until_canceled,
    user,
)
from tests.workflows.people.asking import HeldUp
from tests.workflows.people.writers import PARENT, asks_writer, writers_task

cached = cached_or_replayed


def question(call: RunToolInput, **fields: object) -> Question:
    asked = {"id": call.call.id, "kind": QuestionKind.CONFIRMATION, "text": "May I?", "call": call.call}
    return Question.model_validate({**asked, **fields})


def asking(*names: str, **fields: object) -> Callable[[RunToolInput], ToolReply | None]:
    """Make these tools (by default the one called ask) ask once, and then give a result."""

    def reply(call: RunToolInput) -> ToolReply | None:
        asks_first = call.call.name in (names or ("ask",)) and not call.answers
        return question(call, **fields) if asks_first else None

    return reply


def of(ports: FakePorts, task_id: str) -> list[TaskState]:
    """The statuses that a task has published itself."""
    return [status.state for id_, status in ports.publish.by_task if id_ == task_id]


async def until_asked_by(ports: FakePorts, handle: Handle, times: int = 1) -> None:
    await ports.publish.until(lambda: sum(state.is_interrupted for state in of(ports, handle.id)) >= times)


def one_question(**fields: object) -> FakePorts:
    model = ScriptedModel(asks_writer("w"), asks(("q", "ask")), answer("A poem."), answer("done"))
    return FakePorts(model, CountingTools(reply=asking(**fields)))


async def test_a_question_of_a_sub_agent_is_answered_at_the_parent(start_task: StartTask) -> None:
    """The client gets it at its own task, and answers there; the call goes on with the answer."""
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


async def test_what_a_sub_agent_asks_of_approvers_is_answered_at_the_clients_task(
    start_task: StartTask,
) -> None:
    """By callers with the scope only; the answer is routed down."""
    ports = one_question(approvers="tasks:approve", purpose="approval")
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        who = {"approver": "ann", "owner": "supervisors", "scheme": "apiKey", "subject": "k1"}
        said = {"question_id": "w/q", "scope": "tasks:approve", "approved": True, **who}
        await refusal_of(say(handle, user("yes")))
        await handle.execute_update(AgentTask.take_approvers_answer, ApproverAnswer.model_validate(said))
        await handle.result()
    (given,) = ports.tools.calls[-1].answers
    assert (given.question_id, given.approved, given.by, given.approver) == ("q", True, "approver", "ann")


async def test_a_secret_is_named_on_its_way_down(start_task: StartTask) -> None:
    """The answer holds no secret: it has the id of its message, and the tool's name for it."""
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
    """The sub-agent keeps the time; the parent's client gets a working status."""
    ports = one_question(kind=QuestionKind.CLARIFICATION, timeout=0.2, default="a sonnet")
    result = await run(start_task(ports, PARENT))
    assert result.excerpt == "done"
    (given,) = ports.tools.calls[-1].answers
    assert (given.value, given.by) == ("a sonnet", "timeout")
    states = of(ports, ports.model.calls[0].task.task_id)
    assert TaskState.INPUT_REQUIRED in states
    assert states[states.index(TaskState.INPUT_REQUIRED) + 1] is TaskState.WORKING


async def test_two_sub_agents_ask_at_once(start_task: StartTask) -> None:
    """Each answer goes to the question that it names, although their own ids are the same."""

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


async def test_cancelling_a_task_whose_sub_agent_asks(start_task: StartTask, client: Client) -> None:
    """Both end, and nothing is left open."""
    ports = one_question()
    async with start_task(ports, PARENT) as handle:
        await until_asked_by(ports, handle)
        await handle.cancel()
        await until_canceled(handle)
        view = await handle.query(AgentTask.view)
        child = await client.get_workflow_handle_for(AgentTask.run, writers_task(handle.id)).query(
            AgentTask.view
        )
    assert (view.status.state, view.status.questions) == (TaskState.CANCELED, ())
    assert (child.status.state, child.status.questions) == (TaskState.CANCELED, ())


async def test_an_answer_at_the_sub_agents_own_task_counts_too(start_task: StartTask, client: Client) -> None:
    """The parent's client gets a status without the question."""
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


async def test_a_question_goes_with_the_sub_agent_that_asked(start_task: StartTask, client: Client) -> None:
    """It ends while its question is being published; the parent's own question is asked after it."""
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
