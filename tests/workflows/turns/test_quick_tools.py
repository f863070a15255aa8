"""Quick tools run inside the workflow, as local activities; failures are handled as for any other tool."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from everloop.workflows import scope
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import RunToolInput, ToolReply
from everloop.workflows.contract.messages import ToolCall
from everloop.workflows.contract.questions import Question, QuestionKind
from everloop.workflows.contract.tasks import AgentSpec, TaskResult, ToolSpec
from everloop.workflows.turns import tool_turn
from tests.support.fakes.ports import CountingTools, FakePorts, ScriptedModel, answer, asks
from tests.workflows.conftest import Handle, StartTask, asked_of_client, cached_or_replayed, say, user

Fail = Callable[[RunToolInput], Awaitable[None]]

QUICK = AgentSpec(id="agent", tools={"look": ToolSpec(quick=True), "slow": ToolSpec()})


cached = cached_or_replayed


class QuickTools(CountingTools):
    """Records the ids of the local calls; `fail` may make one fail."""

    def __init__(
        self, fail: Fail | None = None, reply: Callable[[RunToolInput], ToolReply | None] = lambda _: None
    ) -> None:
        super().__init__(reply=reply)
        self.local: list[str] = []
        self._fail = fail

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        if not activity.info().is_local:
            return await super().run_tool(call)
        self.local.append(call.call.id)
        if self._fail:
            await self._fail(call)
        return await super().run_tool(call)


async def _events(handle: Handle) -> list[str]:
    """Return the types of the events of a task, with the activities by their names."""
    found: list[str] = []
    async for event in handle.fetch_history_events():
        name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
        scheduled = event.activity_task_scheduled_event_attributes
        found.append(scheduled.activity_type.name if scheduled.activity_id else name)
    return found


async def test_a_quick_call_is_one_event(start_task: StartTask) -> None:
    """It runs in the workflow task that folds the reply in, which schedules the next model call as well.

    It publishes no status: a result that is not in history yet may be another one at the next attempt.
    """
    ports = FakePorts(ScriptedModel(asks(("a", "look"), text="Looking."), answer("done")), QuickTools())
    async with start_task(ports, QUICK) as handle:
        assert (await handle.result()).excerpt == "done"
        events = await _events(handle)
    (at,) = [number for number, name in enumerate(events) if name == "MARKER_RECORDED"]
    assert events[at - 1 : at + 2] == ["WORKFLOW_TASK_COMPLETED", "MARKER_RECORDED", "call_model"]
    assert "run_tool" not in events
    (run,) = ports.tools.calls
    assert run.scheduled
    assert not run.statuses
    (status,) = ports.model.calls[1].statuses
    assert status.message


async def test_many_quick_calls_of_one_reply(start_task: StartTask) -> None:
    """Twenty run side by side, each once, and their results are in the order of the calls."""
    calls = tuple((f"c{n}", "look") for n in range(20))
    ports = FakePorts(ScriptedModel(asks(*calls), answer("done")), tools := QuickTools())
    async with start_task(ports, QUICK.model_copy(update={"max_parallel_tools": 20})) as handle:
        await handle.result()
        page = await handle.query(AgentTask.transcript)
        events = Counter(await _events(handle))
    assert sorted(tools.local) == sorted(id_ for id_, _ in calls)
    assert [m.call_id for m in page.messages if m.role == "tool"] == [id_ for id_, _ in calls]
    assert (events["MARKER_RECORDED"], events["run_tool"]) == (20, 0)


async def test_calls_of_one_reply_do_not_look_at_one_another(
    start_task: StartTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hundreds, a workflow task would take seconds, which Temporal counts as a deadlock."""
    looks = Counter[str]()
    for name in ("__eq__", "__copy__"):

        def look(one: ToolCall, *other: object, of: str = name) -> object:
            looks[of] += 1
            return getattr(BaseModel, of)(one, *other)

        monkeypatch.setattr(ToolCall, name, look)
    monkeypatch.setattr(tool_turn, "QUICK_BYTES", 10**9)
    many = 100
    ports = FakePorts(
        ScriptedModel(asks(*((f"c{n}", "look") for n in range(many))), answer("done")), QuickTools()
    )
    together = QUICK.model_copy(update={"tools": {"look": ToolSpec(quick=True, batch=True)}})
    async with start_task(ports, together) as handle:
        await handle.result()
        steps = Counter(await _events(handle))["WORKFLOW_TASK_COMPLETED"]
    assert looks.total() < 4 * many * steps


async def test_calls_of_a_batch_begin_together(start_task: StartTask) -> None:
    """Each has the size of the batch, and does not wait for another one.

    Calls of another tool do not count.
    """
    calls = asks(*((f"c{n}", "rate") for n in range(7)), ("x", "look"))
    ports = FakePorts(ScriptedModel(calls, answer("done")), tools := CountingTools(asyncio.Event(), 8))
    rates = {"rate": ToolSpec(batch=True), "look": ToolSpec()}
    async with start_task(ports, AgentSpec(id="agent", tools=rates)) as handle:
        await handle.result()
    assert {(call.call.name, call.together) for call in tools.calls} == {("rate", 7), ("look", 1)}
    assert tools.most_at_once == 8


def _raising(type_: str, delay: timedelta | None = None) -> Fail:
    async def fail(_call: RunToolInput) -> None:
        raise ApplicationError("no", type=type_, next_retry_delay=delay)

    return fail


async def _redis_is_away(_call: RunToolInput) -> None:
    raise ConnectionError


async def _hang(_call: RunToolInput) -> None:
    await asyncio.Event().wait()


FAILURES: Mapping[str, tuple[Fail, str, int]] = {
    "it is tried again": (_raising(failures.TOOL_FAILED, timedelta(seconds=0.01)), failures.TOOL_FAILED, 2),
    "it is too slow, or too large": (_raising(failures.NOT_QUICK), failures.NOT_QUICK, 1),
    "it hangs": (_hang, "TimeoutError", 1),
    "nobody knows why": (_redis_is_away, "ConnectionError", 2),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_quick_call_that_fails_goes_the_way_of_others(
    start_task: StartTask, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """That call has the outcome of the quick one; a tool that is not quick is not called quickly again."""
    fail, tried, quick = FAILURES[case]
    monkeypatch.setattr(scope, "QUICK_TIME", -1)  # with the margin: one second
    ports = FakePorts(
        ScriptedModel(asks(("a", "look"), text="Looking."), asks(("b", "look")), answer("done")),
        tools := QuickTools(fail),
    )
    async with start_task(ports, QUICK) as handle:
        assert (await handle.result()).excerpt == "done"
        events = Counter(await _events(handle))
    assert len(tools.local) == quick
    assert [run.tried for run in tools.calls] == [tried, tried if quick > 1 else ""]
    assert tools.calls[0].statuses  # the quick call has not carried them
    assert events["TIMER_STARTED"] == (2 if tried == failures.TOOL_FAILED else 0)


@pytest.mark.parametrize("why", ["split queues", "too much", "answered"])
async def test_where_a_quick_tool_is_called_like_any_other(
    start_task: StartTask, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Calls of tools have a queue of their own; the results would not fit; a status has to be published."""

    def ask_once(call: RunToolInput) -> ToolReply | None:
        if why != "answered" or call.answers:
            return None
        return Question(id="q", kind=QuestionKind.CONFIRMATION, text="May I?", call=call.call)

    if why == "too much":
        monkeypatch.setattr(tool_turn, "QUICK_BYTES", 1)
    tools = QuickTools(reply=ask_once)
    ports = FakePorts(ScriptedModel(asks(("a", "look")), answer("done")), tools)
    async with start_task(ports, QUICK, {"splits_queues": why == "split queues"}) as handle:
        if why == "answered":
            await asked_of_client(ports, handle)
            await say(handle, user("yes"))
        assert (await handle.result()).excerpt == "done"
    assert len(tools.local) == (1 if why == "answered" else 0)
    assert len(tools.calls) == len(tools.local) + 1


async def test_a_reset_before_a_quick_call_runs_it_again(start_task: StartTask, client: Client) -> None:
    """Its result was lost with the workflow task that contained it."""
    ports = FakePorts(
        ScriptedModel(asks(("a", "look")), answer("done"), answer("done again")), tools := QuickTools()
    )
    async with start_task(ports, QUICK) as handle:
        await handle.result()
        before = (await _events(handle)).index("MARKER_RECORDED")  # the id of the event before it
        run = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                workflow_task_finish_event_id=before,
                request_id=str(uuid4()),
                reason="test",
            )
        )
        again = client.get_workflow_handle(handle.id, run_id=run.run_id, result_type=TaskResult)
        assert (await again.result()).excerpt == "done again"
    assert tools.local == ["a", "a"]
    first, second = (call.scheduled for call in tools.calls)
    assert first
    assert second
    assert first < second
