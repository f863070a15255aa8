"""Guarantees of a running task: the loop, its messages and its views."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import ArtifactChunk, StatusChanged
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    Usage,
    UserMessage,
    extend_digest,
    text_of,
)
from everloop.workflows.contract.tasks import AgentSpec, TaskState
from everloop.workflows.turns.model_turn import RESEND_PAUSES
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks, fails
from tests.workflows.conftest import StartTask, cached_or_replayed, run, user

cached = cached_or_replayed


@pytest.mark.parametrize("is_published", [True, False])
async def test_a_reply_without_tool_calls_is_the_answer(start_task: StartTask, *, is_published: bool) -> None:
    """The answer is published before the terminal status, in one step, if the model call could not do so."""
    ports = FakePorts(ScriptedModel(answer("Hi there.").model_copy(update={"is_published": is_published})))
    result = await run(start_task(ports))
    assert result.state is TaskState.COMPLETED
    assert result.excerpt == "Hi there."
    *chunks, status = ports.publish.events
    assert isinstance(status, StatusChanged)
    assert status.state is TaskState.COMPLETED
    parts = [(chunk.part, chunk.last_chunk) for chunk in chunks if isinstance(chunk, ArtifactChunk)]
    assert parts == ([] if is_published else [(TextPart(text="Hi there."), True)])


async def test_tool_results_are_folded_in_call_order(start_task: StartTask) -> None:
    """Each call has the position of its result; the next model call names them all."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), ("b", "y")), answer("done")))
    await run(start_task(ports))
    first, second = ports.model.calls
    assert (first.length, len(first.new)) == (1, 1)
    assert (second.length, len(second.new)) == (4, 0)
    assert sorted((call.call.id, call.position) for call in ports.tools.calls) == [("a", 2), ("b", 3)]


async def test_at_most_five_tools_run_at_once(start_task: StartTask) -> None:
    """Twelve calls of one reply run side by side, but never more than the agent's limit."""
    tools = CountingTools(gate=asyncio.Event(), gate_size=5)
    calls = tuple((f"call-{n}", "x") for n in range(12))
    ports = FakePorts(ScriptedModel(asks(*calls), answer("done")), tools)
    await run(start_task(ports))
    assert len(tools.calls) == 12
    assert tools.most_at_once == 5


async def test_a_message_that_comes_while_the_model_works_is_answered(start_task: StartTask) -> None:
    """The inbox is taken before the task may end; the overtaken answer becomes a status message."""
    started, added = asyncio.Event(), asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await added.wait()
        return answer("too early")

    ports = FakePorts(ScriptedModel(slow, answer("both answered")))
    more = user("And this?")
    async with start_task(ports) as handle:
        await started.wait()
        await handle.execute_update(AgentTask.add_message, more, id=more.message_id)
        await handle.execute_update(AgentTask.add_message, more, id=more.message_id)
        added.set()
        result = await handle.result()

    assert result.excerpt == "both answered"
    first, second = ports.model.calls
    assert second.new == (more,)
    assert second.length == first.length + 2
    (status,) = second.statuses
    assert status.message
    assert text_of(status.message.parts) == "too early"


async def test_a_lost_transcript_is_sent_again_once(start_task: StartTask) -> None:
    """TranscriptMissing is answered with the whole transcript, then the same call."""
    lost = fails(failures.TRANSCRIPT_MISSING, "lost")
    ports = FakePorts(ScriptedModel(asks(("a", "x")), lost, answer("done")))
    await run(start_task(ports))
    (stored,) = ports.transcript.stored
    assert stored.start == 0
    assert [message.role for message in stored.messages] == ["user", "assistant", "tool"]
    assert ports.model.calls[1].length == ports.model.calls[2].length == 3


async def test_a_transcript_that_gets_lost_again_is_sent_again_later(start_task: StartTask) -> None:
    """At once for the first time, then after a second, two, and so on.

    An outage of Redis may last minutes.
    """
    lost = fails(failures.TRANSCRIPT_MISSING, "lost")
    ports = FakePorts(ScriptedModel(lost, lost, lost, answer("done")))
    async with start_task(ports) as handle:
        await handle.result()
        history = await handle.fetch_history()
    timers = [event.timer_started_event_attributes for event in history.events if event.event_type == TIMER]
    assert [timer.start_to_fire_timeout.ToSeconds() for timer in timers] == [1, 2]
    assert [pause.total_seconds() for pause in RESEND_PAUSES] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(ports.transcript.stored) == 3


TIMER = EventType.EVENT_TYPE_TIMER_STARTED


async def test_each_call_names_the_digest_of_its_transcript(start_task: StartTask) -> None:
    """Except a transcript just sent again: a worker of another version computes another digest."""
    lost = fails(failures.TRANSCRIPT_MISSING, "lost")
    ports = FakePorts(ScriptedModel(asks(("a", "x")), lost, asks(("b", "x")), answer("done")))
    async with start_task(ports, AgentSpec(id="agent", memory=Memory())) as handle:
        await handle.result()
        page = await handle.query(AgentTask.transcript, 0)
        assert await handle.query(AgentTask.transcript, -1) == page
    named = [(call.length, call.digest) for call in ports.model.calls]
    digests = {length: extend_digest("", page.messages[:length]) for length in (1, 3, 5, 6)}
    assert named == [(1, digests[1]), (3, digests[3]), (3, ""), (5, digests[5])]
    (kept,) = ports.publish.remembered
    assert (kept.length, kept.digest) == (6, digests[6])


async def test_a_status_survives_a_lost_transcript(start_task: StartTask) -> None:
    """The status of the second call carries the messages that the first call would have taken in."""
    lost = fails(failures.TRANSCRIPT_MISSING, "lost")
    ports = FakePorts(ScriptedModel(lost, answer("done")))
    await run(start_task(ports))
    first, second = ports.model.calls
    (begun,), (again,) = first.statuses, second.statuses
    assert (first.new, second.new) == (again.received, ())
    (message,) = again.received
    assert begun.received == (UserMessage(message_id=message.message_id, parts=()),)


async def test_statuses_are_numbered_and_carried_by_the_next_call(start_task: StartTask) -> None:
    """Text before tool calls becomes a status message; no activity exists only to publish it."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), text="Let me look."), answer("done")))
    async with start_task(ports) as handle:
        await handle.result()
        view = await handle.query(AgentTask.view)
    (first,), (second,) = ports.model.calls[0].statuses, ports.tools.calls[0].statuses
    assert second.message
    assert text_of(second.message.parts) == "Let me look."
    assert ports.model.calls[1].statuses == ()
    versions = [first.version, second.version]
    assert [*versions, ports.publish.statuses[0].version] == [1, 2, 3]
    assert [message.role for message in view.history] == ["user", "agent"]
    assert view.version == 3


async def test_queries_show_the_task_and_its_progress(start_task: StartTask) -> None:
    """Usage adds up over iterations; the view holds the answer as a complete artifact."""
    reply = asks(("a", "x")).model_copy(update={"usage": Usage(input_tokens=10, output_tokens=2)})
    last = answer("done").model_copy(update={"usage": Usage(input_tokens=20, output_tokens=3)})
    ports = FakePorts(ScriptedModel(reply, last))
    async with start_task(ports) as handle:
        await handle.result()
        progress = await handle.query(AgentTask.progress)
        view = await handle.query(AgentTask.view)
        description = await handle.describe()
    assert (progress.iteration, progress.transcript_length, progress.phase) == (2, 4, "done")
    assert progress.usage == Usage(input_tokens=30, output_tokens=5)
    assert view.artifacts[0].complete
    assert view.artifacts[0].parts == (TextPart(text="done"),)
    assert description.typed_search_attributes[names.TASK_STATE] == "completed"
