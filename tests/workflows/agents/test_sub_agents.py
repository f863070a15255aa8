"""Tools that are fallbacks, run on other queues, or are agents; their number, and their limits."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import pytest
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import (
    CallModelInput,
    LoadAgentInput,
    LoadedAgent,
    RunToolInput,
    ToolReply,
)
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, Usage, text_of
from everloop.workflows.contract.tasks import AgentSpec, Identity, TaskState, ToolSpec
from tests.support.fakes.ports import (
    CountingTools,
    FakePorts,
    FixedAgents,
    ScriptedModel,
    answer,
    asks,
    asks_writer,
    fails,
)
from tests.workflows.conftest import StartTask, failure_of, run, until_canceled
from tests.workflows.people.writers import PARENT, writers_task

FIRST_STEP = 4
"""The event of a history that ends the first workflow task."""

USAGE = Usage(input_tokens=5, output_tokens=2)
ASKS_WRITER = asks_writer("w").model_copy(update={"usage": USAGE})
FALLBACKS: Mapping[str, ToolSpec] = {
    "a": ToolSpec(fallback="b"),
    "b": ToolSpec(fallback="c"),
    "c": ToolSpec(),
}


def endless(started: asyncio.Event) -> Callable[[object], Awaitable[AssistantMessage]]:
    """Return a model call that ends only when it is cancelled."""

    async def call(_call: object) -> AssistantMessage:
        started.set()
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)

    return call


async def test_a_sub_agent_answers_as_a_task_of_its_own(start_task: StartTask) -> None:
    """Its answer is the result of the call, in the cache of the parent; its usage counts for both."""
    written = answer("A poem.").model_copy(update={"usage": USAGE})
    ports = FakePorts(ScriptedModel(ASKS_WRITER, written, answer("done")))
    result = await run(start_task(ports, PARENT))
    parent, child, _ = ports.model.calls
    assert child.task.task_id == writers_task(parent.task.task_id)
    assert (child.task.agent_id, child.task.context_id) == ("writer", parent.task.context_id)
    assert text_of(child.new[0].parts) == "Write."
    (stored,) = ports.tools.results
    assert (stored.result.content, stored.result.outcome, stored.position) == ("A poem.", "ok", 2)
    assert result.usage == USAGE + USAGE
    assert ports.tools.calls == []


@pytest.mark.parametrize(
    ("changes", "outcome", "content"),
    [
        ({}, "ok", "A poem.\n\n[it was cut off]"),
        ({"text": ""}, "ok", "[it was cut off]"),
        ({"text": "", "rejects": True}, "error", "writer rejected the task: it was cut off"),
    ],
    ids=["with an answer", "without one", "rejected"],
)
async def test_a_sub_agent_that_does_not_end_well_says_so(
    start_task: StartTask, changes: dict[str, object], outcome: str, content: str
) -> None:
    """The calling agent reads its last status; an empty answer would look like success."""
    written = answer("A poem.").model_copy(update={"closing": "it was cut off", **changes})
    ports = FakePorts(ScriptedModel(ASKS_WRITER, written, answer("done")))
    await run(start_task(ports, PARENT))
    (stored,) = ports.tools.results
    assert (stored.result.outcome, stored.result.content) == (outcome, content)


async def test_what_a_failed_sub_agent_used_counts_too(start_task: StartTask) -> None:
    """The model reads the reason of the failure and goes on."""
    busy = asks(("x", "x")).model_copy(update={"usage": USAGE})
    refused = fails(failures.MODEL_REFUSED, "no such model")
    ports = FakePorts(ScriptedModel(ASKS_WRITER, busy, refused, answer("sorry")))
    result = await run(start_task(ports, PARENT))
    (stored,) = ports.tools.results
    assert (stored.result.content, stored.result.outcome) == ("writer failed: no such model", "error")
    assert result.usage == USAGE + USAGE


async def test_agents_that_ask_each_other_come_to_an_end(start_task: StartTask) -> None:
    """At a certain depth the model reads that it cannot call agents. All work has the first task's owner."""

    class Recursive(ScriptedModel):
        @activity.defn
        async def call_model(self, call: CallModelInput) -> AssistantMessage:
            self.calls.append(call)
            return ASKS_WRITER if call.length == 1 else answer("enough")

    class Agents(FakePorts):
        def __init__(self) -> None:
            super().__init__(Recursive())
            self.agents.spec = PARENT

    ports, client = Agents(), Identity(scheme="apiKey", subject="client")
    result = await run(start_task(ports, PARENT, changes={"identity": client}))
    assert result.excerpt == "enough"
    assert [call.identity for call in ports.agents.loaded] == [client] * 6
    outcomes = [stored.result.outcome for stored in ports.tools.results]
    assert outcomes == ["error", *(["ok"] * 5)]


async def test_cancelling_a_task_cancels_its_sub_agent(start_task: StartTask, client: Client) -> None:
    """The child has ended, and published its end, before its parent does."""
    started = asyncio.Event()
    ports = FakePorts(ScriptedModel(ASKS_WRITER, endless(started)))
    async with start_task(ports, PARENT) as handle:
        await started.wait()
        await handle.cancel()
        await until_canceled(handle)
        child = await client.get_workflow_handle(writers_task(handle.id)).describe()
    assert child.status is WorkflowExecutionStatus.CANCELED
    ends = [status.state for status in ports.publish.statuses if status.state.is_terminal]
    assert ends == [TaskState.CANCELED] * 2


async def test_a_cancelled_task_asks_no_sub_agent(start_task: StartTask) -> None:
    """The cancellation came while plugins checked the call, and they allowed it."""
    started = asyncio.Event()

    class Looking(FixedAgents):
        @activity.defn
        async def load_agent(self, call: LoadAgentInput) -> LoadedAgent:
            with contextlib.suppress(asyncio.CancelledError):
                await endless(started)(call)
            return await super().load_agent(call)

    ports = FakePorts(ScriptedModel(ASKS_WRITER, answer("A poem."), answer("too late")))
    ports.agents = Looking()
    async with start_task(ports, PARENT.model_copy(update={"hooks": ("before_tool",)})) as handle:
        await started.wait()
        await handle.cancel()
        await until_canceled(handle)
    assert len(ports.model.calls) == 1


async def test_a_sub_agent_that_is_cancelled_alone(start_task: StartTask, client: Client) -> None:
    """An operator ends the child only: the model of the parent reads so and goes on."""
    started = asyncio.Event()
    ports = FakePorts(ScriptedModel(ASKS_WRITER, endless(started), answer("Without a poem.")))
    async with start_task(ports, PARENT) as handle:
        await started.wait()
        await client.get_workflow_handle(writers_task(handle.id)).cancel()
        result = await handle.result()
    assert result.excerpt == "Without a poem."
    (stored,) = ports.tools.results
    assert stored.result.outcome == "error"
    assert stored.result.content.startswith("writer failed")
    ends = [status.state for status in ports.publish.statuses if status.state.is_terminal]
    assert ends == [TaskState.CANCELED, TaskState.COMPLETED]


async def test_a_task_that_is_reset_asks_its_sub_agent_anew(start_task: StartTask, client: Client) -> None:
    """Also while the child of the run before still works: that one is cancelled."""
    started = asyncio.Event()
    wait, runs = endless(started), list[str]()

    async def reply(call: CallModelInput) -> AssistantMessage:
        """Answer by agent, and not in order: Temporal may have any call done again."""
        if call.task.agent_id == PARENT.id:
            return ASKS_WRITER if call.length == 1 else answer("done")
        runs.append(activity.info().workflow_run_id or "")
        return await wait(call) if runs[-1] == runs[0] else answer("A poem.")

    class Writers(ScriptedModel):
        @activity.defn
        async def call_model(self, call: CallModelInput) -> AssistantMessage:
            return await reply(call)

    ports = FakePorts(Writers())

    async with start_task(ports, PARENT) as handle:
        await started.wait()
        await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id),
                request_id=handle.id,
                workflow_task_finish_event_id=FIRST_STEP,
            )
        )
        result = await client.get_workflow_handle_for(AgentTask.run, handle.id).result()

    assert result.excerpt == "done"
    assert len(set(runs)) == 2
    assert {stored.result.content for stored in ports.tools.results} == {"A poem."}


async def test_fallbacks_get_the_same_arguments(start_task: StartTask) -> None:
    """One after the other, until one works; the model gets one result, and subscribers are warned."""

    def reply(call: RunToolInput) -> ToolReply | None:
        if call.call.name == "c":
            return None
        return ToolMessage(call_id=call.call.id, name=call.call.name, content="down", outcome="error")

    ports = FakePorts(ScriptedModel(asks(("1", "a")), answer("done")), CountingTools(reply=reply))
    await run(start_task(ports, AgentSpec(id="agent", tools=dict(FALLBACKS))))
    called = [(call.call.name, call.call.id, call.position, call.warning) for call in ports.tools.calls]
    assert called == [
        ("a", "1", 2, ""),
        ("b", "1", 2, "a failed, b stands in"),
        ("c", "1", 2, "b failed, c stands in"),
    ]
    assert ports.model.calls[1].length == 3


@pytest.mark.parametrize("outcome", ["invalid", "unknown", "rejected"])
async def test_only_a_failure_calls_for_a_fallback(start_task: StartTask, outcome: str) -> None:
    """Neither a person's no, nor wrong arguments, nor an effect that may have happened causes one."""

    def reply(call: RunToolInput) -> ToolReply:
        fields = {"call_id": call.call.id, "name": call.call.name, "content": "", "outcome": outcome}
        return ToolMessage.model_validate(fields)

    ports = FakePorts(ScriptedModel(asks(("1", "a")), answer("done")), CountingTools(reply=reply))
    await run(start_task(ports, AgentSpec(id="agent", tools=dict(FALLBACKS))))
    assert [call.call.name for call in ports.tools.calls] == ["a"]


async def test_a_task_asks_other_agents_only_so_often(start_task: StartTask) -> None:
    """Over the limit the model reads that it has to go on without."""
    ports = FakePorts(ScriptedModel(asks_writer("v", "w"), answer("A poem."), answer("done")))
    await run(start_task(ports, PARENT.model_copy(update={"max_sub_agents": 1})))
    outcomes = sorted(stored.result.outcome for stored in ports.tools.results)
    assert outcomes == ["error", "ok"]
    refused = next(s.result.content for s in ports.tools.results if s.result.outcome == "error")
    assert refused.startswith("this task has asked other agents 1 times")


async def test_a_sub_agent_has_what_is_left_of_the_budget(start_task: StartTask) -> None:
    """A child that would use more than its parent has left is stopped by the parent's limit."""
    busy = asks(("x", "x")).model_copy(update={"usage": Usage(input_tokens=60)})
    first = asks_writer("w").model_copy(update={"usage": Usage(input_tokens=40)})
    ports = FakePorts(ScriptedModel(first, busy, answer("never")))
    async with start_task(ports, PARENT.model_copy(update={"max_tokens": 100})) as handle:
        await failure_of(handle)
    (stored,) = ports.tools.results
    assert stored.result.content.startswith("writer failed: stopped after 60 tokens")
