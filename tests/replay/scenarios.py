"""Tasks whose histories are kept: each takes another way through the workflow code."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.support.fake_ports import FakePorts, Script, ScriptedModel, answer, asks
from workflows.agent_task import AgentTask
from workflows.contract import failures
from workflows.contract.calls import CallModelInput
from workflows.contract.messages import AssistantMessage, TextPart, UserMessage
from workflows.contract.tasks import AgentSpec, TaskResult

AGENT = AgentSpec(id="agent", max_iterations=3)

Handle = WorkflowHandle[AgentTask, TaskResult]


async def _watch(_handle: Handle) -> None:
    """Do nothing: the task runs by itself."""


@dataclass(frozen=True)
class Scenario:
    """What stands behind the ports, and what a client does meanwhile."""

    ports: FakePorts
    act: Callable[[Handle], Awaitable[None]] = _watch


def _fail(failure_type: str) -> ApplicationError:
    return ApplicationError("scripted failure", type=failure_type, non_retryable=True)


def _plays(*script: Script) -> Callable[[], Scenario]:
    return lambda: Scenario(FakePorts(ScriptedModel(*script)))


def _a_message_meanwhile(*after: Script) -> Callable[[], Scenario]:
    """The first reply comes after a second message of the client."""

    def make() -> Scenario:
        started, added = asyncio.Event(), asyncio.Event()

        async def slow(_call: CallModelInput) -> AssistantMessage:
            started.set()
            await added.wait()
            return answer("too early")

        async def act(handle: Handle) -> None:
            await started.wait()
            message = UserMessage(message_id="m2", parts=(TextPart(text="And this?"),))
            await handle.execute_update(AgentTask.add_message, message, id=message.message_id)
            added.set()

        return Scenario(FakePorts(ScriptedModel(slow, *after)), act)

    return make


def _canceled() -> Scenario:
    """The client cancels while the model writes."""
    started = asyncio.Event()

    async def endless(_call: CallModelInput) -> AssistantMessage:
        started.set()
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.05)

    async def act(handle: Handle) -> None:
        await started.wait()
        await handle.cancel()

    return Scenario(FakePorts(ScriptedModel(endless)), act)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "answer": _plays(answer("Hi.")),
    "answer_not_shown": _plays(answer("Hi.").model_copy(update={"is_shown": False})),
    "tools": _plays(asks(("a", "x"), ("b", "y"), text="Let me look."), asks(("c", "x")), answer("done")),
    "many_tools": _plays(asks(*((f"c{n}", "x") for n in range(7))), answer("done")),
    "transcript_lost": _plays(asks(("a", "x")), _fail(failures.TRANSCRIPT_MISSING), answer("done")),
    "model_refused": _plays(_fail(failures.MODEL_REFUSED)),
    "iteration_limit": _plays(*(asks((f"c{n}", "x")) for n in range(3))),
    "message_meanwhile": _a_message_meanwhile(answer("both answered")),
    "message_to_a_failing_task": _a_message_meanwhile(_fail(failures.MODEL_REFUSED)),
    "canceled": _canceled,
}
