"""Tasks that outgrow one history continue in a new run; nothing is lost, and histories grow by new data."""

import asyncio

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract.calls import CallModelInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
    content_digest,
    text_of,
)
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import AgentSpec, TaskState
from tests.support.fakes.ports import CountingTools, FakePorts, Script, ScriptedModel, answer, asks
from tests.workflows.conftest import Handle, StartTask, cached_or_replayed, say, starter, user
from tests.workflows.people.asking import asking

cached = cached_or_replayed
ITERATIONS = 20
USAGE = Usage(input_tokens=3, output_tokens=1, cost=0.5)
AGENT = AgentSpec(id="agent", max_iterations=100)


def long_script() -> list[Script]:
    """One tool call in each iteration, each with a text, then the answer."""
    replies = [asks((f"c{n}", "x"), text=f"step {n}") for n in range(ITERATIONS)]
    return [reply.model_copy(update={"usage": USAGE}) for reply in [*replies, answer("done")]]


async def whole_transcript(handle: Handle) -> list[TranscriptMessage]:
    """Read the transcript page by page."""
    messages: list[TranscriptMessage] = []
    start: int | None = 0
    while start is not None:
        page = await handle.query(AgentTask.transcript, start)
        messages += page.messages
        start = page.next
    return messages


async def test_a_long_task_goes_on_in_new_runs(start_long_task: StartTask) -> None:
    """Messages, usage, versions and iterations are carried; the cache of the run before is named once."""
    ports = FakePorts(ScriptedModel(*long_script()))

    async with start_long_task(ports, AGENT) as handle:
        result = await handle.result()
        view = await handle.query(AgentTask.view)
        transcript = await whole_transcript(handle)

    runs = list(dict.fromkeys(call.task.run_id for call in ports.model.calls))
    assert len(runs) > 2
    assert result.iterations == ITERATIONS + 1
    assert result.usage == Usage(
        input_tokens=3 * (ITERATIONS + 1), output_tokens=ITERATIONS + 1, cost=0.5 * (ITERATIONS + 1)
    )
    assert [message.role for message in transcript] == [
        "user",
        *(["assistant", "tool"] * ITERATIONS),
        "assistant",
    ]
    assert len(view.history) == ITERATIONS + 1
    versions = [status.version for call in ports.tools.calls for status in call.statuses]
    assert versions == list(range(2, ITERATIONS + 2))
    lengths = [call.length for call in ports.model.calls]
    assert lengths == [1 + 2 * n for n in range(ITERATIONS + 1)]
    named = [call.previous_run for call in ports.model.calls if call.previous_run]
    assert named == runs[:-1]
    assert ports.transcript.stored == []


class BusyModel(ScriptedModel):
    """Calls one more tool until all messages were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.all_said = asyncio.Event()

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        self.calls.append(call)
        return answer("done") if self.all_said.is_set() else asks((f"c{call.iteration}", "x"))


async def test_no_message_is_lost_or_doubled_between_runs(start_long_task: StartTask) -> None:
    """Messages in bursts are taken in once each, even repeated ones."""
    ports = FakePorts(model := BusyModel())
    async with start_long_task(ports, AgentSpec(id="agent", max_iterations=1000)) as handle:
        for burst in range(6):
            messages = [user(f"message {burst}.{n}") for n in range(8)]
            await asyncio.gather(*(_send(handle, message) for message in messages))
        await _send(handle, last := user("the last message"))
        other = last.model_copy(update={"parts": (TextPart(text="something else"),)})
        known = await _send(handle, other)
        model.all_said.set()
        await handle.result()
        view = await handle.query(AgentTask.view)
    assert known == content_digest(last)
    told = [text_of(message.parts) for message in view.history if message.role == "user"]
    assert told.pop() == "the last message"
    assert sorted(told) == ["Hello", *(f"message {burst}.{n}" for burst in range(6) for n in range(8))]
    assert len({call.task.run_id for call in ports.model.calls}) > 2


async def _send(handle: Handle, message: UserMessage) -> str:
    """Send a message twice, and again while it meets a run that is just ending, as the gateway does.

    Return the answer of the task.
    """
    known = ""
    for attempt in "ab":  # update ids of their own: Temporal forgets them with each run
        while True:
            try:
                known = await handle.execute_update(
                    AgentTask.add_message, message, id=f"{message.message_id}-{attempt}"
                )
            except RPCError as error:
                if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}:
                    raise
            else:
                break
    return known


async def test_open_questions_go_along(start_long_task: StartTask) -> None:
    """A parked task continues as a new run with its question, its finished calls and its answer to come."""

    def ask_at_the_end(call: RunToolInput) -> ToolReply | None:
        if call.call.id != "asks" or len(call.answers) == 9:
            return None
        id_ = f"asks.{len(call.answers) + 1}"
        return Question(id=id_, kind=QuestionKind.CLARIFICATION, text="More?", call=call.call)

    ports = FakePorts(
        ScriptedModel(asks(("asks", "x"), ("other", "x")), answer("done")),
        CountingTools(reply=ask_at_the_end),
    )

    async with start_long_task(ports) as handle:
        for count in range(1, 10):
            await ports.publish.until_asked(count)
            await say(handle, user(f"answer {count}"))
        await handle.result()
        view = await handle.query(AgentTask.view)

    assert len({call.task.run_id for call in ports.tools.calls}) > 1
    last = ports.tools.calls[-1]
    assert [given.value for given in last.answers] == [f"answer {n}" for n in range(1, 10)]
    assert sum(call.call.id == "other" for call in ports.tools.calls) == 1
    assert view.status.state is TaskState.COMPLETED
    assert len([message for message in view.history if message.role == "user"]) == 10


async def test_a_task_that_waits_goes_on_in_new_runs(start_long_task: StartTask) -> None:
    """Messages that are not answers make its history long; in the end Temporal would accept no answer."""
    ports, messages = asking("a", a={}), [user(f"message {n}") for n in range(10)]
    async with start_long_task(ports) as handle:
        await ports.publish.until_asked()
        for message in messages:
            await _send(handle, message)
        await say(handle, user("yes"))
        await handle.result()
        view = await handle.query(AgentTask.view)
    asked, answered = ports.tools.calls
    assert asked.task.run_id != answered.task.run_id
    assert {message.message_id for message in messages} <= {message.message_id for message in view.history}


COUNTS = (5, 30, 100)
RESULT = "x" * 2_000
SLACK = 1.03
"""Allowed growth of an iteration's bytes from a short to a long task: numbers have more digits."""


def _result(call: RunToolInput) -> ToolMessage:
    return ToolMessage(call_id=call.call.id, name=call.call.name, content=RESULT)


async def _bytes(client: Client, iterations: int) -> int:
    """Run a task of so many iterations, and return the size of all its runs' histories."""
    replies = [asks((f"c{n}", "x"), text=f"step {n}") for n in range(iterations)]
    ports = FakePorts(ScriptedModel(*replies, answer("done")), CountingTools(reply=_result))
    async with starter(client, max_cached_workflows=1000)(
        ports, AgentSpec(id="agent", max_iterations=400)
    ) as task:
        result = await task.result()
        runs = dict.fromkeys(call.task.run_id for call in ports.model.calls)
        histories = [await client.get_workflow_handle(task.id, run_id=run).fetch_history() for run in runs]
    assert result.iterations == iterations + 1
    assert ports.transcript.stored == []
    return sum(event.ByteSize() for history in histories for event in history.events)


@pytest.mark.timeout(600)
async def test_history_is_linear_in_bytes(client: Client) -> None:
    """An iteration costs as many bytes between the 30th and the 100th as between the 5th and the 30th."""
    few, some, many = [await _bytes(client, iterations) for iterations in COUNTS]
    early = (some - few) / (COUNTS[1] - COUNTS[0])
    late = (many - some) / (COUNTS[2] - COUNTS[1])
    assert len(RESULT) < early < 4 * len(RESULT)
    assert late < SLACK * early
