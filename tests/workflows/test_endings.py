"""Ends of a task: by failures, cancellation and limits."""

import asyncio
import contextlib

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError

from everloop.worker import WorkerSettings, running_workers
from everloop.workflows import task_limits
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import Compaction
from everloop.workflows.contract.calls import CallModelInput, CompactContextInput, RunToolInput, ToolReply
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    TextPart,
    ToolMessage,
    Usage,
    UserMessage,
    text_of,
)
from everloop.workflows.contract.tasks import AgentSpec, TaskState, ToolSpec
from tests.support.fakes.ports import (
    TASK_WORK,
    CountingTools,
    FakePorts,
    Script,
    ScriptedModel,
    answer,
    asks,
    fails,
)
from tests.workflows.conftest import (
    StartTask,
    failure_of,
    refusal_of,
    run,
    start_workflow,
    unique_queue,
    until_canceled,
    user,
)


async def test_an_ending_task_refuses_messages(start_task: StartTask) -> None:
    """From the last check of the inbox on, a message is refused with a named failure, never swallowed."""
    ports = FakePorts(ScriptedModel(answer("done")))
    ports.publish.gate = asyncio.Event()
    async with start_task(ports) as handle:
        await ports.publish.entered.wait()
        refused = await refusal_of(handle.execute_update(AgentTask.add_message, user("late")))
        ports.publish.gate.set()
        await handle.result()
    assert refused.type == failures.TASK_TERMINAL


async def test_a_model_failure_ends_the_task_with_its_cause(start_task: StartTask) -> None:
    """A client reads the provider's reason in the status message; Temporal shows the task as failed."""
    refused = fails(failures.MODEL_REFUSED, "no such model")
    ports = FakePorts(ScriptedModel(refused))
    async with start_task(ports) as handle:
        failed = await failure_of(handle)
        view = await handle.query(AgentTask.view)
    assert failed.type == failures.MODEL_REFUSED
    assert view.status.state is TaskState.FAILED
    assert view.status.message
    assert text_of(view.status.message.parts) == "no such model"


CUT = AssistantMessage(
    text="Half of",
    finish_reason="length",
    usage=Usage(input_tokens=40, output_tokens=10),
    reason=failures.REPLY_CUT,
    closing="the answer was cut off",
)


@pytest.mark.parametrize(
    ("how", "state", "answers"),
    [
        ({}, TaskState.COMPLETED, ["Half of"]),
        ({"fails": True}, TaskState.FAILED, []),
        ({"rejects": True, "text": ""}, TaskState.REJECTED, []),
    ],
    ids=["accepted", "fails", "rejects"],
)
async def test_a_reply_that_did_not_end_well_ends_the_task_with_a_name(
    start_task: StartTask, how: dict[str, object], state: TaskState, answers: list[str]
) -> None:
    """The last status has the reason for people and for programs.

    Its cost counts, half a text is not shown.
    """
    ports = FakePorts(ScriptedModel(CUT.model_copy(update=how)))
    async with start_task(ports) as handle:
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()
        view = await handle.query(AgentTask.view)
    status = view.status
    assert (status.state, status.metadata["usage"]) == (state, CUT.usage.to_metadata())
    assert status.message
    assert text_of(status.message.parts) == "the answer was cut off"
    assert status.message.metadata == {"reason": failures.REPLY_CUT}
    assert [artifact.parts[0] for artifact in view.artifacts] == [TextPart(text=text) for text in answers]
    assert [message for message in view.history if not isinstance(message, UserMessage)] == []


async def _until_cancelled() -> None:
    """Return when Temporal cancels the activity, as a call does that ends well although it was cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)


LOST = fails(failures.TRANSCRIPT_MISSING, "lost")

PLAIN = AgentSpec(id="agent")
FALLS_BACK = AgentSpec(id="agent", fallback_models=("second",))
WAITS = AgentSpec(id="agent", on_model_failure="wait")
TIMED = AgentSpec(id="agent", wall_clock=60)
STANDS_IN = AgentSpec(id="agent", tools={"x": ToolSpec(fallback="y"), "y": ToolSpec()})


@pytest.mark.parametrize(
    ("agent", "end"),
    [
        (PLAIN, "well"),
        (PLAIN, "canceled"),
        (TIMED, "canceled"),
        (FALLS_BACK, failures.MODEL_UNAVAILABLE),
        (WAITS, failures.MODEL_UNAVAILABLE),
        (PLAIN, failures.TRANSCRIPT_MISSING),
    ],
    ids=["with an answer", "canceled", "with a wall clock", "another model", "an operator", "sent again"],
)
async def test_cancellation_ends_a_model_call(start_task: StartTask, agent: AgentSpec, end: str) -> None:
    """The task is canceled when the call has ended; no text is lost, no default replaces the call.

    A call that fails by itself just then hides the cancellation; the task ends all the same.
    """
    started = asyncio.Event()

    async def endless(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await _until_cancelled()
        if end == "canceled":
            raise asyncio.CancelledError
        if end != "well":
            raise fails(end, "not now")
        return answer("Just in time.")

    ports = FakePorts(ScriptedModel(endless, answer("too late")))
    async with start_task(ports, agent) as handle:
        await started.wait()
        await handle.cancel()
        await until_canceled(handle)
    assert len(ports.model.calls) == 1
    *remarks, status = ports.publish.statuses
    assert status.state is TaskState.CANCELED
    said = [text_of(remark.message.parts) for remark in remarks if remark.message]
    assert said == (["Just in time."] if end == "well" else [])


async def test_cancellation_ends_a_summary_that_was_to_be_sent_more(start_task: StartTask) -> None:
    """A cancelled summary that reports a missing transcript is not repeated."""
    started = asyncio.Event()

    class SummingUp(ScriptedModel):
        @activity.defn
        async def compact_context(self, call: CompactContextInput) -> SummaryMessage:
            started.set()
            await _until_cancelled()
            self.summary_failures = [LOST]
            return await super().compact_context(call)

    too_long = fails(failures.CONTEXT_TOO_LONG, "too long")
    ports = FakePorts(SummingUp(asks(("a", "x")), asks(("b", "x")), too_long, answer("too late")))
    async with start_task(ports, AgentSpec(id="agent", compaction=Compaction())) as handle:
        await started.wait()
        await handle.cancel()
        await until_canceled(handle)
    assert len(ports.model.compactions) == 1


class EndlessTools(CountingTools):
    """Tools that end when they are cancelled: normally, or with an error."""

    def __init__(self, *, ends_well: bool) -> None:
        super().__init__()
        self.running, self.all_run, self._ends_well = 0, asyncio.Event(), ends_well

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        self.calls.append(call)
        self.running += 1
        if self.running == 5:
            self.all_run.set()
        await _until_cancelled()
        await asyncio.sleep(0.02 * self.running)
        self.running -= 1
        if self._ends_well:
            return broken(call)
        raise asyncio.CancelledError


@pytest.mark.parametrize("ends_well", [True, False])
async def test_cancellation_waits_for_every_tool(start_task: StartTask, *, ends_well: bool) -> None:
    """No tool runs when the task becomes canceled; no waiting one starts, and no fallback."""
    tools = EndlessTools(ends_well=ends_well)
    ports = FakePorts(ScriptedModel(asks(*((f"c{n}", "x") for n in range(7)))), tools)
    running_when_published: list[int] = []
    ports.publish.on_publish = lambda: running_when_published.append(tools.running)

    async with start_task(ports, STANDS_IN) as handle:
        await tools.all_run.wait()
        await handle.cancel()
        await until_canceled(handle)

    assert running_when_published == [0]
    assert [call.call.name for call in tools.calls] == ["x"] * 5
    assert ports.publish.statuses[-1].state is TaskState.CANCELED


async def test_a_cancellation_after_the_end_was_decided_comes_too_late(start_task: StartTask) -> None:
    """Clients have got the completed status, and the workflow completes."""
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
    """A task that is cancelled before a worker came still reports the messages that it took in."""
    ports, queue = FakePorts(ScriptedModel()), unique_queue()
    handle = await start_workflow(client, queue)
    await handle.cancel()
    async with running_workers(client, ports.wired(), WorkerSettings(task_queue=queue), TASK_WORK):
        await until_canceled(handle)
    first, last = ports.publish.statuses
    assert [text_of(message.parts) for message in first.received] == ["Hello"]
    assert (first.version, last.version, last.state) == (1, 2, TaskState.CANCELED)
    assert ports.model.calls == []


async def test_a_message_that_a_failing_task_took_in_is_not_lost(start_task: StartTask) -> None:
    """It is in the history, although it was not answered."""
    started, added = asyncio.Event(), asyncio.Event()

    async def refuses(_call: CallModelInput) -> AssistantMessage:
        started.set()
        await added.wait()
        raise fails(failures.MODEL_REFUSED, "no such model")

    ports = FakePorts(ScriptedModel(refuses))
    more = user("And this?")
    async with start_task(ports) as handle:
        await started.wait()
        await handle.execute_update(AgentTask.add_message, more, id=more.message_id)
        added.set()
        await failure_of(handle)
        view = await handle.query(AgentTask.view)
    assert ports.publish.statuses[-1].received == (more,)
    assert view.history[-1] == more


USAGE = Usage(input_tokens=40, output_tokens=10, cost=0.25)


def endless() -> list[Script]:
    return [asks((f"c{n}", "x")).model_copy(update={"usage": USAGE}) for n in range(10)]


def broken(call: RunToolInput) -> ToolReply:
    return ToolMessage(call_id=call.call.id, name=call.call.name, content="no", outcome="error")


LIMITS: dict[str, tuple[AgentSpec, int]] = {
    failures.ITERATION_LIMIT: (AgentSpec(id="agent", max_iterations=4), 4),
    failures.TOKEN_LIMIT: (AgentSpec(id="agent", max_tokens=120), 3),
    failures.COST_LIMIT: (AgentSpec(id="agent", max_cost=0.5), 2),
    failures.TOOL_FAILURE_LIMIT: (AgentSpec(id="agent", max_tool_failures=3), 3),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_limit_ends_the_task_with_its_name(start_task: StartTask, limit: str) -> None:
    """The status message names the limit; its usage is in the view."""
    agent, calls = LIMITS[limit]
    tools = CountingTools(reply=broken) if limit == failures.TOOL_FAILURE_LIMIT else CountingTools()
    ports = FakePorts(ScriptedModel(*endless()), tools)

    async with start_task(ports, agent) as handle:
        failed = await failure_of(handle)
        view = await handle.query(AgentTask.view)
    assert failed.type == limit
    assert len(ports.model.calls) == calls
    assert view.status.state is TaskState.FAILED
    assert view.status.message
    assert view.status.message.metadata == {"reason": limit}
    assert "stopped" in text_of(view.status.message.parts)
    assert view.status.metadata["usage"] == {
        "inputTokens": 40 * calls,
        "outputTokens": 10 * calls,
        "cost": 0.25 * calls,
    }


async def test_a_task_that_knows_too_much_ends(
    start_task: StartTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run could not carry its whole transcript; the reason has the remedy."""
    monkeypatch.setattr(task_limits, "MAX_CARRIED_BYTES", 1_000_000)

    def large(call: RunToolInput) -> ToolReply:
        return ToolMessage(call_id=call.call.id, name=call.call.name, content="x" * 400_000)

    ports = FakePorts(ScriptedModel(*endless()), CountingTools(reply=large))
    async with start_task(ports) as handle:
        failed = await failure_of(handle)
    assert failed.type == failures.TRANSCRIPT_LIMIT
    assert "1.2 MB, more than the 1 MB" in failed.message
    assert "artifacts" in failed.message
    assert len(ports.model.calls) == 3


async def test_one_tool_that_works_ends_a_row_of_failures(start_task: StartTask) -> None:
    """Only iterations in a row count, and only those without a success; a person's no is not a failure."""

    def every_other(call: RunToolInput) -> ToolReply | None:
        if call.call.id.startswith("no"):
            return broken(call).model_copy(update={"outcome": "rejected"})
        return None if call.call.id in {"c2", "b1"} else broken(call)

    replies = [asks(("c0", "x")), asks(("c1", "x"), ("b1", "x")), asks(("c2", "x")), asks(("c3", "x"))]
    replies += [asks((f"no{n}", "x")) for n in range(3)]
    ports = FakePorts(ScriptedModel(*replies, answer("done")), CountingTools(reply=every_other))
    result = await run(start_task(ports, AgentSpec(id="agent", max_tool_failures=2)))
    assert result.excerpt == "done"


@pytest.mark.parametrize("ends_well", [True, False])
async def test_the_wall_clock_ends_a_call_that_runs(start_task: StartTask, *, ends_well: bool) -> None:
    """A task does not wait for a slow model; the call has ended when the task fails."""
    running: list[bool] = []

    async def slow(_call: CallModelInput) -> AssistantMessage:
        running.append(True)
        try:
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            running.clear()
            if not ends_well:
                raise
        return asks(("a", "x"))

    ports = FakePorts(ScriptedModel(slow))
    async with start_task(ports, AgentSpec(id="agent", wall_clock=1)) as handle:
        failed = await failure_of(handle)
    assert failed.type == failures.TIME_LIMIT
    assert running == []
    assert ports.tools.calls == []
    assert ports.publish.statuses[-1].state is TaskState.FAILED
