"""Fakes of the ports: what a workflow test scripts and what it looks at afterwards."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import activity

from worker import Ports
from workflows.contract.calls import CallModelInput, PublishInput, RunToolInput, StoreTranscriptInput
from workflows.contract.events import StatusChanged, TaskEvent
from workflows.contract.messages import AssistantMessage, ToolCall, ToolMessage
from workflows.contract.ports import ModelPort, PublishPort, ToolPort, TranscriptPort

Script = AssistantMessage | Exception | Callable[[CallModelInput], Awaitable[AssistantMessage]]


def answer(text: str) -> AssistantMessage:
    """A reply that ends the task."""
    return AssistantMessage(text=text, finish_reason="stop")


def asks(*calls: tuple[str, str], text: str = "") -> AssistantMessage:
    """A reply that asks for tools, given as (call id, name)."""
    return AssistantMessage(
        text=text,
        tool_calls=tuple(ToolCall(id=id_, name=name, arguments="{}") for id_, name in calls),
        finish_reason="tool_calls",
    )


class ScriptedModel(ModelPort):
    """Plays its replies in order. An exception is raised, a function is awaited."""

    def __init__(self, *script: Script) -> None:
        self._script = list(script)
        self.calls: list[CallModelInput] = []

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        self.calls.append(call)
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, AssistantMessage) else await step(call)


class CountingTools(ToolPort):
    """Answers each call with its own name; remembers the calls and how many ran at once."""

    def __init__(self, gate: asyncio.Event | None = None, gate_size: int = 0) -> None:
        self.calls: list[RunToolInput] = []
        self.most_at_once = 0
        self._running = 0
        self._gate = gate
        self._gate_size = gate_size

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolMessage:
        self.calls.append(call)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        if self._gate:
            if self._running == self._gate_size:
                self._gate.set()
            await self._gate.wait()
        self._running -= 1
        return ToolMessage(call_id=call.call.id, name=call.call.name, content=f"{call.call.id} done")


class RecordingTranscripts(TranscriptPort):
    """Remembers what was sent again."""

    def __init__(self) -> None:
        self.stored: list[StoreTranscriptInput] = []

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        self.stored.append(call)


class RecordingPublisher(PublishPort):
    """Remembers what the workflow published itself; `gate` holds it up."""

    def __init__(self) -> None:
        self.events: list[TaskEvent] = []
        self.entered = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.on_publish: Callable[[], None] = lambda: None

    @activity.defn
    async def publish(self, call: PublishInput) -> None:
        self.entered.set()
        self.on_publish()
        if self.gate:
            await self.gate.wait()
        self.events.extend(call.events)

    @property
    def statuses(self) -> list[StatusChanged]:
        return [event for event in self.events if isinstance(event, StatusChanged)]


class FakePorts:
    """All four fakes, and the `Ports` made of them."""

    def __init__(self, model: ScriptedModel, tools: CountingTools | None = None) -> None:
        self.model = model
        self.tools = tools or CountingTools()
        self.transcript = RecordingTranscripts()
        self.publish = RecordingPublisher()

    def wired(self) -> Ports:
        return Ports(self.model, self.tools, self.transcript, self.publish)
