"""A task as its clients and its operators see it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from everloop.workflows.contract.messages import (
    AgentMessage,
    Message,
    Part,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.names import derive_context_id
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import OWNER, Question
from everloop.workflows.contract.settings import Compaction, Memory, ModelSettings

# What guards say of tools, by their names: what runs, what never does, and what people approve first.

Decision = Literal["allow", "deny", "approve"]


class GuardRules(Wire):
    """Lists of patterns such as "read_*" (`fnmatch`, upper and lower case differ).

    `default` decides about tools that no list names. `approvers`: who approves, the owner of the task or
    callers with this scope.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    default: Decision = "allow"
    approvers: str = OWNER

    def decide(self, tool: str) -> Decision:
        """Decide by the first list that names the tool: deny, approve, allow."""
        if _names(self.deny, tool):
            return "deny"
        if _names(self.approve, tool):
            return "approve"
        return "allow" if _names(self.allow, tool) else self.default

    def refusal(self, tool: str) -> str:
        """Say that the tool is denied, and what is allowed instead; empty if it is not denied."""
        if self.decide(tool) != "deny":
            return ""
        return f"the tool {tool!r} is not allowed here ({self._allowed()})"

    def _allowed(self) -> str:
        named = {"allow": [*self.allow], "approve": [*self.approve]}
        named.get(self.default, []).append("all others")
        words = {"allow": "allowed", "approve": "allowed once people approve"}
        lists = [f"{words[name]}: {', '.join(patterns)}" for name, patterns in named.items() if patterns]
        return "; ".join(lists) or "no tool is"


def refusal(guards: Iterable[GuardRules], tool: str) -> str:
    """Return what the first guard says that denies a tool; empty if none does."""
    return next(filter(None, (guard.refusal(tool) for guard in guards)), "")


def approvers_of(guards: Iterable[GuardRules], tool: str) -> str:
    """Return who approves calls of a tool; empty if no guard wants an approval."""
    return strictest(guard.approvers for guard in guards if guard.decide(tool) == "approve")


def strictest(approvers: Iterable[str]) -> str:
    """Return the first scope among those who are to approve, else the owner; empty if there is nobody."""
    asked = list(approvers)
    return next((each for each in asked if each != OWNER), OWNER if asked else "")


def _names(patterns: Sequence[str], tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


class TaskState(StrEnum):
    """A2A 1.0 §4.1.3 TaskState, without its TASK_STATE_ prefix."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL_STATES

    @property
    def is_interrupted(self) -> bool:
        """Whether the task waits for its client."""
        return self in {TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}


TERMINAL_STATES = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})


class ToolSpec(Wire):
    """What the workflow has to know of a tool to run it."""

    timeout: float = 30.0
    """In seconds, for one attempt."""
    task_queue: str | None = None
    """None: the task's own."""
    fallback: str | None = None
    """The tool that gets the same arguments when this one failed."""
    agent: str | None = None
    """A sub-agent: the call runs as a task of this agent."""
    handoff: str | None = None
    """The agent that has the task from then on."""
    serial: bool = False
    """Of one reply, calls of serial tools run one after another, in their order."""
    asks: bool = False
    """People may be asked before it runs, so the line of the call says that it is a check."""
    batch: bool = False
    """Calls of one reply run as one."""
    quick: bool = False
    """It runs as a local activity, unless calls of tools have a queue of their own."""
    abandons: bool = False
    """It wants to know when nobody waits any more for a call of it."""
    plugin: str = ""
    """The plugin that listed the tool for this task."""
    digest: str = ""
    """That of what the plugin listed."""
    needs_approval: bool = False
    """People had to approve each call of it when it was listed, so they have to till the task ends."""


class NarratorSpec(Wire):
    """Every `interval` seconds the client reads what the task is doing. `model` None: the agent's own."""

    interval: float = 5.0
    model: str | None = None


class AgentSpec(Wire):
    """The part of an agent's definition that a task pins when it starts. Limits that are None do not hold."""

    id: str
    model: str | None = None
    """None: the worker's own default (EVERLOOP_MODEL)."""
    fallback_models: tuple[str, ...] = ()
    """They are asked, in order, when `model` cannot answer."""
    on_model_failure: Literal["fail", "wait"] = "fail"
    """If none can: the task fails, or waits for an operator."""
    compaction: Compaction | None = None
    max_iterations: int = 30
    max_tokens: int | None = None
    max_cost: float | None = None
    """In US dollars."""
    wall_clock: float | None = None
    """In seconds."""
    max_tool_failures: int | None = None
    """Iterations in a row in which no tool call worked."""
    max_parallel_tools: int = 5
    tools: dict[str, ToolSpec] = {}
    """Every tool by its name. One that the model invents is not in it and ends as a tool error."""
    deduplicate: bool = True
    artifact_tool: str | None = None
    """The tool that the model has to call before the task may end without any artifact."""
    routing: Literal["task", "auto"] = "task"
    """With "auto" the first model call decides whether the message becomes a task or is answered at once."""
    version: str = ""
    """Names the definition."""
    memory: Memory | None = None
    narrator: NarratorSpec | None = None
    guards: tuple[GuardRules, ...] = ()
    """The rules of its guards, which hold for its sub-agents too."""
    hooks: tuple[str, ...] = ()
    """The names of those that its plugins have."""
    lists_tools: bool = False
    """Whether a plugin has to be asked which tools there are."""
    has_output: bool = False
    """The answer is data that fits a schema."""
    max_sub_agents: int | None = None
    """Tasks of sub-agents that one task may start."""
    task_queue: str | None = None
    """Where calls of its models and tools wait; None: with those of all agents."""
    priority: int | None = None
    """Temporal's, 1 (first) to 5."""
    settings: ModelSettings = ModelSettings()
    last_call: bool = False
    """At a limit the model is asked once more, without tools, to answer with what it has."""


_specs: dict[str, AgentSpec] = {}


def _shared(spec: AgentSpec) -> AgentSpec:
    """Return the specification that an earlier task of the agent had, if it is the same.

    A worker that keeps many tasks in memory would else have it once for each: 5 KB with four tools.
    """
    known = _specs.setdefault(spec.id, spec)
    if known != spec:
        known = _specs[spec.id] = spec
    return known  # not what is there now: workflows of another version run in threads beside this one


class Identity(Wire):
    """Who started a task, for its tools: nothing secret, for history keeps it.

    `scheme` is how the caller was recognised (empty: not at all); `claims` are what settings let through.
    """

    scheme: str = ""
    subject: str = ""
    scopes: tuple[str, ...] | None = None
    claims: dict[str, JsonValue] = {}


class ForkOrigin(Wire):
    """The task from whose past another one goes on, and how many of its iterations that past has."""

    task_id: str
    iteration: int


class Fork(ForkOrigin):
    """What a task begins with that is a fork: the messages of its origin, with the results of its calls.

    Nothing of them happens again. A message of the client that is among them is not said again. `first` is
    the position of the origin's first message.
    """

    messages: tuple[TranscriptMessage, ...] = ()
    first: int = 0

    @property
    def origin(self) -> ForkOrigin:
        return ForkOrigin(task_id=self.task_id, iteration=self.iteration)


class TaskInput(Wire):
    """How a task starts. The task id is the workflow id. An operator reads it in this order."""

    message: UserMessage
    context_id: str
    owner: str
    created_at: datetime
    agent: Annotated[AgentSpec, AfterValidator(_shared)]
    depth: int = 0
    """0 for the task of a client, 1 for that of a sub-agent, 2 for that of its sub-agent."""
    guards: tuple[GuardRules, ...] = ()
    """Those of the agents above it, the client's first, which hold besides its own."""
    identity: Identity | None = None
    digest: str = ""
    """That of the message's content, for whoever has to know whether another message is the same."""
    scheduled: bool = False
    """No gateway knows of it yet, and of the agent only the id is given."""
    splits_queues: bool = False
    """Calls of models and of tools wait on queues of their own, so that each kind can have its own
    workers."""
    fork: Fork | None = None
    """What it begins with; a later run of the task has it in what it is carried."""
    attachments: str = ""
    """The schedule that keeps files or a webhook for it; empty: none does."""


class TaskRef(Wire):
    """Which run of which task an activity works for, and the version of the agent that it began with.

    It is sent with every call, so it is written without what an activity knows anyway (`named`).
    """

    task_id: str = Field(default="", exclude=True)
    run_id: str = Field(default="", exclude=True)
    context_id: str = ""
    owner: str
    agent_id: str
    agent_version: str = ""

    def named(self, task_id: str, run_id: str) -> Self:
        """Return it with what was not written: workflow and run, and the context if no client named it."""
        context_id = self.context_id or derive_context_id(task_id)
        return self.model_copy(update={"task_id": task_id, "run_id": run_id, "context_id": context_id})

    @model_serializer(mode="wrap")
    def _without_known(self, write: SerializerFunctionWrapHandler) -> dict[str, str]:
        written: dict[str, str] = write(self)
        if self.context_id == derive_context_id(self.task_id):
            written.pop("context_id", None)
        return written

    @property
    def span_attributes(self) -> dict[str, str]:
        """What a span says of the task that it is about."""
        return {
            "gen_ai.agent.id": self.agent_id,
            "gen_ai.conversation.id": self.context_id,
            "everloop.task.id": self.task_id,
        }


class TaskStatus(Wire):
    """A2A 1.0 §4.1.2. `at` is workflow time, UTC. `questions` are open: answers are welcome."""

    state: TaskState
    at: datetime
    message: AgentMessage | None = None
    questions: tuple[Question, ...] = ()
    metadata: dict[str, JsonValue] = {}


class Artifact(Wire):
    """An output of a task. A draft (`complete` is false) may still be replaced as a whole.

    `failed`: the task ended before the draft was complete, and not well.
    """

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...]
    complete: bool
    failed: bool = False


class TaskView(Wire):
    """The whole A2A-facing task: the fold of its events.

    `version` counts the statuses that `run_id` published; 0 with an empty `run_id` is what the gateway
    writes before a worker has seen the task. `is_hidden`: clients have no such task (yet): its message may be
    answered at once.
    """

    task_id: str
    context_id: str
    owner: str
    agent_id: str
    created_at: datetime
    run_id: str = ""
    version: int = 0
    status: TaskStatus
    history: tuple[Message, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    is_hidden: bool = False
    fork: ForkOrigin | None = None


class TaskProgress(Wire):
    """Answer of the `progress` query: where the loop stands."""

    phase: str
    iteration: int
    usage: Usage
    transcript_length: int
    pending_tools: tuple[str, ...] = ()
    pending_calls: tuple[str, ...] = ()
    """The ids of these calls."""
    inbox: int = 0
    questions: tuple[Question, ...] = ()
    waits_for_resume: str = ""
    """What failed, while an operator is waited for."""
    last_signal: str = ""
    """What the last signal of an operator did, or why it was refused."""


class TranscriptPage(Wire):
    """Answer of the `transcript` query: messages from position `start` on.

    `next` is where the next page starts, None at the end.
    """

    start: int
    messages: tuple[TranscriptMessage, ...]
    next: int | None = None


class TaskResult(Wire):
    """What the workflow returns."""

    state: TaskState
    iterations: int
    usage: Usage
    excerpt: str
    """The beginning of the answer, which itself is the artifact `response`."""
    answer: str = ""
    """The whole of it, for the parent of a sub-agent only."""
    closing: str = ""
    """What the last status says beside it, or in its place; likewise."""
    artifacts: tuple[str, ...] = ()
    """The ids of what it wrote besides; likewise."""
    message: AgentMessage | None = None
    """What a client gets in place of a task."""
    digest: str = ""


class Route(Wire):
    """What became of a message: a task of its own, or, with `message`, an answer at once.

    `digest` is that of the message (`TaskInput.digest`).
    """

    message: AgentMessage | None = None
    digest: str = ""


# What a schedule cannot know of the tasks that it begins.

Begun = TypeVar("Begun", bound=TaskInput)


def begun(task: Begun, task_id: str, at: datetime) -> Begun:
    """Return a task as it begins.

    One that a schedule began gets its time, a context of its own unless it has one, and its message an id.
    """
    if not task.scheduled:
        return task
    return task.model_copy(
        update={
            "context_id": task.context_id or derive_context_id(task_id),
            "created_at": at,
            "message": task.message.model_copy(update={"message_id": task_id}),
        }
    )
