"""Effects of plugins on a task: listed tools, changed messages, refused replies, and hooks at its end."""

import asyncio
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.model.call_events import statuses_of
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    BeforeRequestInput,
    BeforeRequestResult,
    CallModelInput,
    PreparedTask,
    PrepareTaskInput,
)
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    ListedTool,
    Message,
    TextPart,
    ToolsMessage,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.tasks import AgentSpec, TaskState, TaskStatus, TaskView, ToolSpec
from tests.support.fakes.ports import FakePorts, FixedAgents, ScriptedModel, answer, asks
from tests.support.fences import FencedTask
from tests.workflows.conftest import StartTask, failure_of, run, until_canceled, user

LISTED = ToolsMessage(tools=(ListedTool(name="echo", description="Echoes.", parameters={}),))
LISTING = PreparedTask(listed=LISTED, tools={"echo": ToolSpec(timeout=7, plugin="server", digest="abc")})
LISTING_AGENT = AgentSpec(id="agent", lists_tools=True)
SCREENING_AGENT = AgentSpec(id="agent", hooks=("before_request",))
OUTPUT_AGENT = AgentSpec(id="agent", has_output=True)


def invalid(text: str, why: str = "no number") -> AssistantMessage:
    return answer(text).model_copy(update={"refused": why, "is_invalid": True})


def refused(text: str, why: str) -> AssistantMessage:
    return answer(text).model_copy(update={"refused": why})


BETWEEN = {"nothing": (), "a tool": (asks(("1", "x")),), "a veto": (refused("{}", "rude"),)}


async def test_listed_tools_are_pinned_for_the_task(start_task: StartTask) -> None:
    """The list is in the transcript once; a call of one of its tools names the plugin."""
    ports = FakePorts(ScriptedModel(asks(("a", "echo"), ("b", "other")), answer("done")))
    ports.agents.listing = LISTING
    async with start_task(ports, LISTING_AGENT) as handle:
        await handle.result()
        page = await handle.query(AgentTask.transcript)
    (prepared,) = ports.agents.prepared
    assert (prepared.position, prepared.lists_tools, prepared.loads_agent) == (0, True, False)
    assert page.messages[0] == LISTED
    assert [call.length for call in ports.model.calls] == [2, 5]
    echo, other = sorted(ports.tools.calls, key=lambda call: call.call.id)
    assert (echo.plugin, echo.digest, echo.timeout) == ("server", "abc", 7)
    assert (other.plugin, other.digest) == ("", "")


def published_history(ports: FakePorts, view: TaskView) -> tuple[Message, ...]:
    """The history of a subscriber whose last view is this one."""
    task, begun = FencedTask(), TaskStatus(state=TaskState.SUBMITTED, at=view.created_at)
    opening = {"version": 0, "run_id": "", "status": begun, "history": view.history[:1]}
    task.create(view.model_copy(update=opening))
    for call in ports.model.calls:
        task.publish(view.run_id, statuses_of(call))
    task.publish(view.run_id, ports.publish.statuses)
    assert task.view
    return task.view.history


async def test_a_plugin_changes_what_the_model_reads(start_task: StartTask) -> None:
    """The changed message is the one in the transcript; clients read their own."""

    def redact(call: BeforeRequestInput) -> BeforeRequestResult:
        (message,) = call.messages
        return BeforeRequestResult(
            messages=(message.model_copy(update={"parts": (TextPart(text="[redacted]"),)}),)
        )

    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.screen = redact
    async with start_task(ports, SCREENING_AGENT) as handle:
        await handle.result()
        view = await handle.query(AgentTask.view)
    assert [text_of(message.parts) for message in ports.model.calls[0].new] == ["[redacted]"]
    assert [text_of(message.parts) for message in view.history] == ["Hello"]
    assert published_history(ports, view) == view.history


def refusing(*texts: str) -> FakePorts:
    """Plugins that refuse these texts."""

    def screen(call: BeforeRequestInput) -> BeforeRequestResult:
        is_bad = text_of(call.messages[0].parts) in texts
        return BeforeRequestResult(messages=call.messages, refused="not that" if is_bad else "")

    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents.screen = screen
    return ports


async def test_a_refused_first_message_is_a_rejected_task(start_task: StartTask) -> None:
    """The client reads the reason; no model is called."""
    ports = refusing("Hello")
    result = await run(start_task(ports, SCREENING_AGENT))
    assert result.state is TaskState.REJECTED
    (status,) = ports.publish.statuses
    assert status.message
    assert text_of(status.message.parts) == "not that"
    assert ports.model.calls == []


async def test_the_model_reads_that_a_later_message_was_refused(start_task: StartTask) -> None:
    ports = refusing("Swear!")
    said = asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        await said.wait()
        return answer("too early")

    ports.model = ScriptedModel(slow, answer("done"))

    async with start_task(ports, SCREENING_AGENT) as handle:
        await ports.model.until_asked(1)
        message = user("Swear!")
        await handle.execute_update(AgentTask.add_message, message, id=message.message_id)
        said.set()
        result = await handle.result()
        view = await handle.query(AgentTask.view)

    assert result.excerpt == "done"
    (told,) = ports.model.calls[1].new
    assert told.message_id == message.message_id
    assert text_of(told.parts) == "[A message of the user was refused: not that]"
    assert [text_of(each.parts) for each in view.history] == ["Hello", "Swear!", "too early"]
    assert published_history(ports, view) == view.history


@pytest.mark.parametrize("problem", ["", "not that"])
async def test_a_task_canceled_while_plugins_look_is_canceled(start_task: StartTask, problem: str) -> None:
    """Whatever they return: no model is called any more, and the task is canceled."""
    looks, go_on = asyncio.Event(), asyncio.Event()

    class SlowScreen(FixedAgents):
        @activity.defn
        async def before_request(self, call: BeforeRequestInput) -> BeforeRequestResult:
            looks.set()
            while not go_on.is_set():
                activity.heartbeat()
                await asyncio.sleep(0.05)
            return BeforeRequestResult(messages=call.messages, refused=problem)

    ports = FakePorts(ScriptedModel(answer("too late")))
    ports.agents = SlowScreen()
    async with start_task(ports, SCREENING_AGENT) as handle:
        await looks.wait()
        await handle.cancel()
        go_on.set()
        await until_canceled(handle)
    assert ports.model.calls == []


@pytest.mark.parametrize("spec", [SCREENING_AGENT, LISTING_AGENT], ids=["a hook", "a list of tools"])
async def test_plugins_of_an_agent_that_no_worker_has_are_waited_for(
    start_task: StartTask, spec: AgentSpec
) -> None:
    """Any number of workers without it may take the call: a deployment may take long."""
    attempts = list[int]()

    def look() -> None:
        attempts.append(activity.info().attempt)
        if len(attempts) < 9:
            raise ApplicationError(
                "none here", type=failures.AGENT_UNKNOWN, next_retry_delay=timedelta(milliseconds=1)
            )

    class Elsewhere(FixedAgents):
        @activity.defn
        async def prepare_task(self, call: PrepareTaskInput) -> PreparedTask:
            look()
            return PreparedTask()

        @activity.defn
        async def before_request(self, call: BeforeRequestInput) -> BeforeRequestResult:
            look()
            return BeforeRequestResult(messages=call.messages)

    ports = FakePorts(ScriptedModel(answer("done")))
    ports.agents = Elsewhere()
    assert (await run(start_task(ports, spec))).excerpt == "done"
    assert attempts == [*range(1, 10)]


async def test_a_refused_reply_is_made_again(start_task: StartTask) -> None:
    """The model reads the reason.

    Clients never get the text, neither as the answer nor as a status message.
    """
    ports = FakePorts(ScriptedModel(refused("Damn.", "no swearing"), answer("Done.")))
    result = await run(start_task(ports))
    assert (result.excerpt, result.iterations) == ("Done.", 2)
    (told,) = ports.model.calls[1].new
    assert isinstance(told, UserMessage)
    assert "no swearing" in text_of(told.parts)
    assert all(status.message is None for status in ports.publish.statuses)
    assert ports.model.calls[1].statuses == ()


async def test_an_answer_that_fits_is_data(start_task: StartTask) -> None:
    """It is one data part in every place where a client may read it."""
    ports = FakePorts(
        ScriptedModel(invalid("four"), answer('{"sum": 4}').model_copy(update={"is_published": False}))
    )
    async with start_task(ports, OUTPUT_AGENT) as handle:
        await handle.result()
        view = await handle.query(AgentTask.view)
    (artifact,) = view.artifacts
    assert artifact.parts == (DataPart(data={"sum": 4}),)
    chunk = next(event for event in ports.publish.events if event.kind == "artifact-chunk")
    assert chunk.part == DataPart(data={"sum": 4})


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
async def test_an_answer_is_put_right_only_once(
    start_task: StartTask, between: tuple[AssistantMessage, ...]
) -> None:
    """Whatever the model does before its second try."""
    ports = FakePorts(
        ScriptedModel(invalid("four"), *between, invalid("vier", "still none"), answer('{"sum": 4}'))
    )
    async with start_task(ports, OUTPUT_AGENT) as handle:
        failure = await failure_of(handle)
    assert failure.type == failures.OUTPUT_INVALID
    assert "still none" in failure.message


@pytest.mark.parametrize("hooks", [(), ("after_completion",)])
async def test_plugins_hear_of_the_end(start_task: StartTask, hooks: tuple[str, ...]) -> None:
    """Only those with the hook; their failures change nothing."""
    ports = FakePorts(ScriptedModel(answer("Done.")))
    ports.agents.completion_fails = True
    result = await run(start_task(ports, AgentSpec(id="agent", hooks=hooks)))
    assert result.state is TaskState.COMPLETED
    heard = [(call.state, call.answer) for call in ports.agents.completed]
    assert heard == [(TaskState.COMPLETED, "Done.")] * len(hooks)


@pytest.mark.parametrize("rejects", [True, False])
async def test_an_ending_that_is_no_data_is_text(start_task: StartTask, *, rejects: bool) -> None:
    """A task may end with other text than its agent's data; it ends, and can be read."""
    words = answer("plain words").model_copy(update={"is_published": False, "rejects": rejects})
    ports = FakePorts(ScriptedModel(words))
    async with start_task(ports, OUTPUT_AGENT) as handle:
        await handle.result()
        view = await handle.query(AgentTask.view)
    assert [artifact.parts for artifact in view.artifacts] == [(TextPart(text="plain words"),)]
