"""Fakes of the ports, with scripts for workflow tests and records of calls."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.worker import WorkerPorts
from everloop.workflows.contract.calls import (
    AdmitInput,
    AfterCompletionInput,
    AttachInput,
    BeforeRequestInput,
    BeforeRequestResult,
    CallModelInput,
    CompactContextInput,
    CompactConversationInput,
    LoadAgentInput,
    LoadContextInput,
    LoadContextResult,
    LoadedAgent,
    PreparedTask,
    PrepareTaskInput,
    PublishInput,
    RunToolInput,
    SaveContextInput,
    SaveContextResult,
    StoreResultInput,
    StoreTranscriptInput,
    ToolReply,
)
from everloop.workflows.contract.events import StatusChanged, TaskEvent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.names import (
    MODEL_QUEUE,
    TOOLS_QUEUE,
    WORKFLOWS_QUEUE,
    call_key,
    child_task_id,
)
from everloop.workflows.contract.ports import (
    AgentPort,
    ContextPort,
    ModelPort,
    NarratorPort,
    PublishPort,
    PushPort,
    SchedulePort,
    ToolPort,
    TranscriptPort,
)
from everloop.workflows.contract.tasks import AgentSpec, TaskView
from tests.support.fakes.push import ScriptedPush

Script = AssistantMessage | Exception | Callable[[CallModelInput], Awaitable[AssistantMessage]]


def answer(text: str) -> AssistantMessage:
    """Return a reply that ends the task."""
    return AssistantMessage(text=text, finish_reason="stop")


def asks(*calls: tuple[str, str], text: str = "") -> AssistantMessage:
    """Return a reply with tool calls, given as (call id, name)."""
    return AssistantMessage(
        text=text,
        tool_calls=tuple(ToolCall(id=id_, name=name, arguments="{}") for id_, name in calls),
        finish_reason="tool_calls",
    )


def fails(failure: str, why: str = "the provider said no") -> ApplicationError:
    """Return a failure of this name that is not retryable."""
    return ApplicationError(why, type=failure, non_retryable=True)


def asks_writer(*ids: str) -> AssistantMessage:
    """Return a reply that calls the sub-agent `writer`, with these call ids."""
    calls = (ToolCall(id=id_, name="writer", arguments='{"request": "Write."}') for id_ in ids)
    return AssistantMessage(tool_calls=tuple(calls))


def task_of(task_id: str, call: ToolCall) -> str:
    """Return the task id of the sub-agent that a call starts."""
    return child_task_id(task_id, call_key(call))


TASK_WORK = (WORKFLOWS_QUEUE, MODEL_QUEUE, TOOLS_QUEUE)
"""The queues that tasks need; notifications and narrators have others."""


class ScriptedModel(ModelPort):
    """Plays its replies in order. An exception is raised, a function is awaited.

    Summaries fail first with `summary_failures`.
    """

    def __init__(self, *script: Script) -> None:
        self._script = list(script)
        self.calls: list[CallModelInput] = []
        self.compactions: list[CompactContextInput] = []
        self.summary_failures: list[Exception] = []
        self._called = asyncio.Condition()

    async def until_asked(self, times: int) -> None:
        """Wait for this number of calls of the model."""
        async with self._called:
            await self._called.wait_for(lambda: len(self.calls) >= times)

    @activity.defn
    async def call_model(self, call: CallModelInput) -> AssistantMessage:
        async with self._called:
            self.calls.append(call)
            self._called.notify_all()
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, AssistantMessage) else await step(call)

    @activity.defn
    async def compact_context(self, call: CompactContextInput) -> SummaryMessage:
        self.compactions.append(call)
        if self.summary_failures:
            raise self.summary_failures.pop(0)
        return SummaryMessage(end=call.end, text="what was said", usage=Usage(input_tokens=1))


class CountingTools(ToolPort):
    """Returns each call's name as its result; records the calls and the most concurrent ones.

    `reply` may replace the result, also by a question.
    """

    def __init__(
        self,
        gate: asyncio.Event | None = None,
        gate_size: int = 0,
        reply: Callable[[RunToolInput], ToolReply | None] = lambda _: None,
    ) -> None:
        self.reply = reply
        self.calls: list[RunToolInput] = []
        self._called = asyncio.Condition()
        self.results: list[StoreResultInput] = []
        self.most_at_once = 0
        self._running = 0
        self._gate = gate
        self._gate_size = gate_size

    @activity.defn
    async def run_tool(self, call: RunToolInput) -> ToolReply:
        async with self._called:
            self.calls.append(call)
            self._called.notify_all()
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        if self._gate and not call.abandoned:
            if self._running == self._gate_size:
                self._gate.set()
            await self._gate.wait()
        self._running -= 1
        done = ToolMessage(call_id=call.call.id, name=call.call.name, content=f"{call.call.id} done")
        return self.reply(call) or done

    async def until_called(self, call_id: str, times: int = 1) -> None:
        """Wait until a call has this number of runs."""
        async with self._called:
            await self._called.wait_for(lambda: sum(c.call.id == call_id for c in self.calls) >= times)

    @activity.defn
    async def store_result(self, call: StoreResultInput) -> ToolMessage | None:
        self.results.append(call)
        return None


class RecordingTranscripts(TranscriptPort):
    """Records the transcripts that are sent again."""

    def __init__(self) -> None:
        self.stored: list[StoreTranscriptInput] = []

    @activity.defn
    async def store_transcript(self, call: StoreTranscriptInput) -> None:
        self.stored.append(call)


class RecordingPublisher(PublishPort):
    """Records the workflow's own publishes; `gate` blocks them, `on_remember` may raise."""

    def __init__(self) -> None:
        self.remembered: list[SaveContextInput] = []
        self.on_remember: Callable[[SaveContextInput], SaveContextResult] = lambda _: SaveContextResult()
        self.events: list[TaskEvent] = []
        self.by_task: list[tuple[str, StatusChanged]] = []
        self.opened: list[TaskView] = []
        self.entered = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.on_publish: Callable[[], None] = lambda: None
        self._changed = asyncio.Condition()

    @activity.defn
    async def publish(self, call: PublishInput) -> SaveContextResult | None:
        self.remembered += [call.remember] if call.remember else []
        saved = self.on_remember(call.remember) if call.remember else None
        self.opened += [call.opening] if call.opening else []
        self.entered.set()
        self.on_publish()
        if self.gate:
            await self.gate.wait()
        async with self._changed:
            self.events.extend(call.events)
            statuses = (event for event in call.events if isinstance(event, StatusChanged))
            self.by_task.extend((call.task.task_id, status) for status in statuses)
            self._changed.notify_all()
        return saved

    async def until_asked(self, times: int = 1) -> None:
        """Wait until the task has asked its client this number of times."""
        await self.until(lambda: sum(s.state.is_interrupted for s in self.statuses) >= times)

    async def until_open(self, questions: int, *, now: bool = False) -> None:
        """Wait until any status, or with `now` the last one, has this number of questions."""
        await self.until(
            lambda: any(len(s.questions) == questions for s in self.statuses[-1 if now else 0 :])
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds for the published events."""
        async with self._changed:
            await self._changed.wait_for(holds)

    @property
    def statuses(self) -> list[StatusChanged]:
        return [event for event in self.events if isinstance(event, StatusChanged)]


class FixedAgents(AgentPort):
    """Returns `spec` for any agent; plugins list `listing`, and `screen` judges messages of clients."""

    def __init__(self) -> None:
        self.loaded: list[LoadAgentInput] = []
        self.prepared: list[PrepareTaskInput] = []
        self.completed: list[AfterCompletionInput] = []
        self.completion_fails = False
        self.spec = AgentSpec(id="any")
        self.listing = PreparedTask()
        self.before: Callable[[LoadAgentInput], dict[str, object]] = lambda _: {}
        self.screen: Callable[[BeforeRequestInput], BeforeRequestResult] = lambda call: BeforeRequestResult(
            messages=call.messages
        )

    @activity.defn
    async def load_agent(self, call: LoadAgentInput) -> LoadedAgent:
        self.loaded.append(call)
        agent = self.spec.model_copy(update={"id": call.agent_id})
        return LoadedAgent.model_validate({**agent.model_dump(), **self.before(call)})

    @activity.defn
    async def prepare_task(self, call: PrepareTaskInput) -> PreparedTask:
        self.prepared.append(call)
        spec = self.spec.model_copy(update={"id": call.task.agent_id}) if call.loads_agent else None
        listing = self.listing if call.lists_tools else PreparedTask()
        return listing.model_copy(update={"agent": spec})

    @activity.defn
    async def before_request(self, call: BeforeRequestInput) -> BeforeRequestResult:
        return self.screen(call)

    @activity.defn
    async def after_completion(self, call: AfterCompletionInput) -> None:
        self.completed.append(call)
        if self.completion_fails:
            raise ApplicationError("nobody listens", non_retryable=True)


class RecordingContext(ContextPort):
    """Recalls the given messages, and records the messages to remember."""

    def __init__(self, *recalled: UserMessage | AssistantMessage) -> None:
        self._recalled = recalled
        self.loaded: list[LoadContextInput] = []
        self.saved: list[SaveContextInput] = []

    @activity.defn
    async def load_context(self, call: LoadContextInput) -> LoadContextResult:
        self.loaded.append(call)
        return LoadContextResult(messages=self._recalled)

    @activity.defn
    async def save_context(self, call: SaveContextInput) -> SaveContextResult | None:
        self.saved.append(call)
        return None

    @activity.defn
    async def compact_conversation(self, call: CompactConversationInput) -> None:
        return None


class NoAttachments(SchedulePort):
    """Stores nothing for tasks of schedules, and lets all start."""

    @activity.defn
    async def admit(self, call: AdmitInput) -> None:
        return None

    @activity.defn
    async def attach(self, call: AttachInput) -> None:
        return None


class FakePorts:
    """All fakes, and the `WorkerPorts` made of them."""

    def __init__(self, model: ScriptedModel, tools: CountingTools | None = None) -> None:
        self.model = model
        self.tools = tools or CountingTools()
        self.agents = FixedAgents()
        self.transcript = RecordingTranscripts()
        self.publish = RecordingPublisher()
        self.context = RecordingContext()
        self.push: PushPort = ScriptedPush()
        self.narrator: NarratorPort | None = None

    def wired(self) -> WorkerPorts:
        return WorkerPorts(
            self.model,
            self.tools,
            self.transcript,
            self.publish,
            self.agents,
            context=self.context,
            push=self.push,
            schedules=NoAttachments(),
            narrator=self.narrator,
        )
