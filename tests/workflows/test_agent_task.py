"""What a task promises: the loop, its messages, its views and its ends."""

import asyncio
import contextlib

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError, RPCStatusCode

from tests.support.fake_ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import StartTask, start_workflow, unique_queue, user
from worker import WorkerSettings, build_worker
from workflows.agent_task import AgentTask
from workflows.contract import failures, names
from workflows.contract.calls import CallModelInput, RunToolInput
from workflows.contract.events import ArtifactChunk, StatusChanged
from workflows.contract.messages import AssistantMessage, TextPart, ToolMessage, Usage, text_of
from workflows.contract.tasks import AgentSpec, TaskState


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_reply_without_tool_calls_is_the_answer(start_task: StartTask, *, is_shown: bool) -> None:
    """The answer is published before the terminal status, in one step, if the model call could not do it."""
    ports = FakePorts(ScriptedModel(answer("Hi there.").model_copy(update={"is_shown": is_shown})))

    async with start_task(ports) as handle:
        result = await handle.result()

    assert result.state is TaskState.COMPLETED
    assert result.excerpt == "Hi there."
    *chunks, status = ports.publish.events
    assert isinstance(status, StatusChanged)
    assert status.state is TaskState.COMPLETED
    parts = [(chunk.part, chunk.last_chunk) for chunk in chunks if isinstance(chunk, ArtifactChunk)]
    assert parts == ([] if is_shown else [(TextPart(text="Hi there."), True)])


async def test_tool_results_are_folded_in_call_order(start_task: StartTask) -> None:
    """Each call has the position of its result; the next model call names them all."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), ("b", "y")), answer("done")))

    async with start_task(ports) as handle:
        await handle.result()

    first, second = ports.model.calls
    assert (first.length, len(first.new)) == (1, 1)
    assert (second.length, len(second.new)) == (4, 0)
    assert sorted((call.call.id, call.position) for call in ports.tools.calls) == [("a", 2), ("b", 3)]


async def test_at_most_five_tools_run_at_once(start_task: StartTask) -> None:
    """Twelve calls of one reply run side by side, but never more than the agent's limit."""
    tools = CountingTools(gate=asyncio.Event(), gate_size=5)
    calls = tuple((f"call-{n}", "x") for n in range(12))
    ports = FakePorts(ScriptedModel(asks(*calls), answer("done")), tools)

    async with start_task(ports) as handle:
        await handle.result()

    assert len(tools.calls) == 12
    assert tools.most_at_once == 5


async def test_the_iteration_limit_ends_the_task(start_task: StartTask) -> None:
    """The status names the limit and the failure carries its type."""
    ports = FakePorts(ScriptedModel(*(asks((f"c{n}", "x")) for n in range(3))))

    async with start_task(ports, AgentSpec(id="agent", max_iterations=2)) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == failures.ITERATION_LIMIT
    assert len(ports.model.calls) == 2
    (status,) = ports.publish.statuses
    assert status.state is TaskState.FAILED
    assert status.message
    assert "2 iterations" in text_of(status.message.parts)


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
    assert second.status
    assert second.status.message
    assert text_of(second.status.message.parts) == "too early"


async def test_an_ending_task_refuses_messages(start_task: StartTask) -> None:
    """From the last look into the inbox on, a message is refused with a named failure, never swallowed."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.publish.gate = asyncio.Event()

    async with start_task(ports) as handle:
        await ports.publish.entered.wait()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentTask.add_message, user("late"))
        ports.publish.gate.set()
        await handle.result()

    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == failures.TASK_TERMINAL


async def test_an_ended_task_takes_no_messages(start_task: StartTask) -> None:
    """Temporal itself refuses an update of a closed workflow, as not found."""
    ports = FakePorts(ScriptedModel(answer("done")))

    async with start_task(ports) as handle:
        await handle.result()
        with pytest.raises(RPCError) as refused:
            await handle.execute_update(AgentTask.add_message, user("late"))

    assert refused.value.status is RPCStatusCode.NOT_FOUND


async def test_a_lost_transcript_is_sent_again_once(start_task: StartTask) -> None:
    """TranscriptMissing is answered with the whole transcript, then the same call."""
    lost = ApplicationError("lost", type=failures.TRANSCRIPT_MISSING, non_retryable=True)
    ports = FakePorts(ScriptedModel(asks(("a", "x")), lost, answer("done")))

    async with start_task(ports) as handle:
        await handle.result()

    (stored,) = ports.transcript.stored
    assert stored.start == 0
    assert [message.role for message in stored.messages] == ["user", "assistant", "tool"]
    assert ports.model.calls[1].length == ports.model.calls[2].length == 3


async def test_a_long_transcript_is_sent_again_in_chunks(start_task: StartTask) -> None:
    """No chunk has more than a megabyte."""
    lost = ApplicationError("lost", type=failures.TRANSCRIPT_MISSING, non_retryable=True)
    replies = [asks((f"c{n}", "x"), text="x" * 400_000) for n in range(4)]
    ports = FakePorts(ScriptedModel(*replies, lost, answer("done")))

    async with start_task(ports) as handle:
        await handle.result()

    assert [len(stored.messages) for stored in ports.transcript.stored] == [5, 4]
    assert [stored.start for stored in ports.transcript.stored] == [0, 5]


async def test_a_model_failure_ends_the_task_with_its_cause(start_task: StartTask) -> None:
    """A client reads the provider's reason in the status message; Temporal shows the task as failed."""
    refused = ApplicationError("no such model", type=failures.MODEL_REFUSED, non_retryable=True)
    ports = FakePorts(ScriptedModel(refused))

    async with start_task(ports) as handle:
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        view = await handle.query(AgentTask.view)

    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == failures.MODEL_REFUSED
    assert view.status.state is TaskState.FAILED
    assert view.status.message
    assert text_of(view.status.message.parts) == "no such model"


async def _until_cancelled() -> None:
    """Return when Temporal cancels the activity, as a call does that ends well although it was cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("ends_well", [True, False])
async def test_cancellation_ends_a_model_call(start_task: StartTask, *, ends_well: bool) -> None:
    """The task is canceled when the call has ended, even with an answer; nothing said is lost."""
    started = asyncio.Event()

    async def endless(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await _until_cancelled()
        if not ends_well:
            raise asyncio.CancelledError
        return answer("Just in time.")

    ports = FakePorts(ScriptedModel(endless))
    async with start_task(ports) as handle:
        await started.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert isinstance(failed.value.cause, CancelledError)
    *remarks, status = ports.publish.statuses
    assert status.state is TaskState.CANCELED
    said = [text_of(remark.message.parts) for remark in remarks if remark.message]
    assert said == (["Just in time."] if ends_well else [])


async def test_cancellation_waits_for_every_tool(start_task: StartTask) -> None:
    """No tool still runs when the task says that it is canceled; those that waited never start."""

    class EndlessTools(CountingTools):
        @activity.defn
        async def run_tool(self, call: RunToolInput) -> ToolMessage:
            self.calls.append(call)
            self.running += 1
            if self.running == 5:
                self.all_run.set()
            await _until_cancelled()
            await asyncio.sleep(0.02 * self.running)
            self.running -= 1
            self.running_at_the_end = self.running
            raise asyncio.CancelledError

        running = 0
        running_at_the_end = -1
        all_run = asyncio.Event()

    tools = EndlessTools()
    tools.all_run = asyncio.Event()
    ports = FakePorts(ScriptedModel(asks(*((f"c{n}", "x") for n in range(7)))), tools)
    running_when_published: list[int] = []
    ports.publish.on_publish = lambda: running_when_published.append(tools.running)

    async with start_task(ports) as handle:
        await tools.all_run.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    assert running_when_published == [0]
    assert len(tools.calls) == 5


async def test_a_cancellation_after_the_end_was_decided_comes_too_late(start_task: StartTask) -> None:
    """Clients were told that the task is completed, and so it is."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.publish.gate = asyncio.Event()

    async with start_task(ports) as handle:
        await ports.publish.entered.wait()
        await handle.cancel()
        ports.publish.gate.set()
        result = await handle.result()

    assert result.state is TaskState.COMPLETED
    assert [status.state for status in ports.publish.statuses] == [TaskState.COMPLETED]


async def test_a_status_whose_call_never_started_is_published_at_the_end(client: Client) -> None:
    """A task that is cancelled before a worker came still says what it took in."""
    ports, queue = FakePorts(ScriptedModel()), unique_queue()
    handle = await start_workflow(client, queue)
    await handle.cancel()

    async with build_worker(client, ports.wired(), WorkerSettings(task_queue=queue)):
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    first, last = ports.publish.statuses
    assert [text_of(message.parts) for message in first.received] == ["Hello"]
    assert (first.version, last.version, last.state) == (1, 2, TaskState.CANCELED)
    assert ports.model.calls == []


async def test_a_message_that_a_failing_task_took_in_is_not_lost(start_task: StartTask) -> None:
    """It stands in the history, although nobody answered it."""
    started, added = asyncio.Event(), asyncio.Event()

    async def fails(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await added.wait()
        raise ApplicationError("no such model", type=failures.MODEL_REFUSED, non_retryable=True)

    ports = FakePorts(ScriptedModel(fails))
    more = user("And this?")
    async with start_task(ports) as handle:
        await started.wait()
        await handle.execute_update(AgentTask.add_message, more, id=more.message_id)
        added.set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        view = await handle.query(AgentTask.view)

    assert ports.publish.statuses[-1].received == (more,)
    assert view.history[-1] == more


async def test_an_overtaken_answer_survives_the_iteration_limit(start_task: StartTask) -> None:
    """What the model said is a status message, even when there is no iteration left to go on with."""
    started, added = asyncio.Event(), asyncio.Event()

    async def slow(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await added.wait()
        return answer("too early")

    ports = FakePorts(ScriptedModel(slow))
    async with start_task(ports, AgentSpec(id="agent", max_iterations=1)) as handle:
        await started.wait()
        await handle.execute_update(AgentTask.add_message, user("And this?"))
        added.set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()

    remark, end = ports.publish.statuses
    assert remark.message
    assert text_of(remark.message.parts) == "too early"
    assert end.state is TaskState.FAILED


async def test_a_status_survives_a_lost_transcript(start_task: StartTask) -> None:
    """What the first call would have taken in as new is carried by the status of the second one."""
    lost = ApplicationError("lost", type=failures.TRANSCRIPT_MISSING, non_retryable=True)
    ports = FakePorts(ScriptedModel(lost, answer("done")))

    async with start_task(ports) as handle:
        await handle.result()

    first, second = ports.model.calls
    assert second.status
    assert first.status
    assert (first.new, first.status.received) == (second.status.received, second.new)
    assert len(second.status.received) == 1


async def test_only_the_first_tool_call_carries_the_status(start_task: StartTask) -> None:
    """Each byte enters history once."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), ("b", "x"), text="Let me look."), answer("done")))

    async with start_task(ports) as handle:
        await handle.result()

    assert {call.call.id: bool(call.status) for call in ports.tools.calls} == {"a": True, "b": False}


async def test_statuses_are_numbered_and_carried_by_the_next_call(start_task: StartTask) -> None:
    """Text before tool calls becomes a status message; no activity exists only to publish it."""
    ports = FakePorts(ScriptedModel(asks(("a", "x"), text="Let me look."), answer("done")))

    async with start_task(ports) as handle:
        await handle.result()
        view = await handle.query(AgentTask.view)

    assert ports.model.calls[0].status
    assert ports.tools.calls[0].status
    assert ports.tools.calls[0].status.message
    assert text_of(ports.tools.calls[0].status.message.parts) == "Let me look."
    assert ports.model.calls[1].status is None
    versions = [ports.model.calls[0].status.version, ports.tools.calls[0].status.version]
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


async def test_tool_errors_do_not_end_the_task(start_task: StartTask) -> None:
    """What a tool came to, even an error, is a message for the model."""

    class FailingTools(CountingTools):
        @activity.defn
        async def run_tool(self, call: RunToolInput) -> ToolMessage:
            return ToolMessage(call_id=call.call.id, name=call.call.name, content="no", outcome="error")

    ports = FakePorts(ScriptedModel(asks(("a", "x")), answer("sorry")), FailingTools())

    async with start_task(ports) as handle:
        result = await handle.result()

    assert result.excerpt == "sorry"
