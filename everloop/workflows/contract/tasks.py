"""Views of a task for its clients and its operators."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from everloop.workflows.contract.agent_settings import Compaction, Memory, ModelSettings
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

# Rules of guards by the names of tools: allowed, denied, or approved by people first.

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
        """Decide by the first list with a match: deny, approve, allow."""
        if _names(self.deny, tool):
            return "deny"
        if _names(self.approve, tool):
            return "approve"
        return "allow" if _names(self.allow, tool) else self.default

    def refusal(self, tool: str) -> str:
        """Return why the tool is denied, and the allowed tools; empty if it is not denied."""
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
    """Return the refusal of the first guard that denies a tool; empty if none does."""
    return next(filter(None, (guard.refusal(tool) for guard in guards)), "")


def approvers_of(guards: Iterable[GuardRules], tool: str) -> str:
    """Return who approves calls of a tool; empty if no guard requires an approval."""
    return strictest(guard.approvers for guard in guards if guard.decide(tool) == "approve")


def strictest(approvers: Iterable[str]) -> str:
    """Return the first scope among the approvers, else the owner; empty without approvers."""
    present = list(approvers)
    return next((each for each in present if each != OWNER), OWNER if present else "")


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
    """Fields of a tool that the workflow needs to run it."""

    timeout: float = 30.0
    """Of one attempt, in seconds."""
    task_queue: str | None = None
    """None: that of the task."""
    fallback: str | None = None
    """The tool that gets the same arguments if this one fails."""
    agent: str | None = None
    """A sub-agent: the call runs as a task of this agent."""
    handoff: str | None = None
    """The agent that takes over the task."""
    serial: bool = False
    """Of one reply, calls of serial tools run one after another, in their order."""
    asks: bool = False
    """People may be asked before it runs, so the call is shown as a check."""
    batch: bool = False
    """Calls of one reply run as one."""
    quick: bool = False
    """It runs as a local activity, unless calls of tools have a queue of their own."""
    abandons: bool = False
    """Abandoned calls are reported to it."""
    plugin: str = ""
    """The plugin that listed the tool for this task."""
    digest: str = ""
    """Digest of the listed definition."""
    needs_approval: bool = False
    """Each call needed approval when the tool was listed, so it does until the task ends."""


class NarratorSpec(Wire):
    """Report the activity of a task every `interval` seconds. `model` None: the agent's own."""

    interval: float = 5.0
    model: str | None = None


class AgentSpec(Wire):
    """Pinned part of an agent's definition. A limit of None does not apply."""

    id: str
    model: str | None = None
    """None: the worker's own default (EVERLOOP_MODEL)."""
    fallback_models: tuple[str, ...] = ()
    """Called in order when `model` cannot answer."""
    on_model_failure: Literal["fail", "wait"] = "fail"
    """If no model can answer: the task fails, or waits for an operator."""
    compaction: Compaction | None = None
    max_iterations: int = 30
    max_tokens: int | None = None
    max_cost: float | None = None
    """In US dollars."""
    wall_clock: float | None = None
    """In seconds."""
    max_tool_failures: int | None = None
    """Iterations in a row without a successful tool call."""
    max_parallel_tools: int = 5
    tools: dict[str, ToolSpec] = {}
    """Every tool by its name. An invented name ends as a tool error."""
    deduplicate: bool = True
    artifact_tool: str | None = None
    """The tool that the model has to call before a task without artifacts may end."""
    routing: Literal["task", "auto"] = "task"
    """With "auto" the first model call decides whether the message becomes a task or is answered at once."""
    version: str = ""
    """Version of the definition."""
    memory: Memory | None = None
    narrator: NarratorSpec | None = None
    guards: tuple[GuardRules, ...] = ()
    """The rules of its guards, which hold for its sub-agents too."""
    hooks: tuple[str, ...] = ()
    """Names of the hooks of its plugins."""
    lists_tools: bool = False
    """Whether a plugin lists tools."""
    has_output: bool = False
    """The answer is data that match a schema."""
    max_sub_agents: int | None = None
    """Tasks of sub-agents that one task may start."""
    task_queue: str | None = None
    """Queue of its model and tool calls; None: that of all agents."""
    priority: int | None = None
    """Priority of Temporal, 1 (first) to 5."""
    settings: ModelSettings = ModelSettings()
    last_call: bool = False
    """At a limit the model is called once more, without tools, for a final answer."""


_specs: dict[str, AgentSpec] = {}


def _shared(spec: AgentSpec) -> AgentSpec:
    """Return the equal specification of an earlier task, if there is one.

    A worker with many cached tasks would else hold one for each: 5 KB with four tools.
    """
    shared = _specs.setdefault(spec.id, spec)
    if shared != spec:
        shared = _specs[spec.id] = spec
    return shared  # not the current entry: workflows of another version run in threads beside this one


class Identity(Wire):
    """Who started a task, for its tools. It holds nothing secret, because it is in histories.

    `scheme` is the authentication scheme (empty: not authenticated); `claims` are those that settings
    allow.
    """

    scheme: str = ""
    subject: str = ""
    scopes: tuple[str, ...] | None = None
    claims: dict[str, JsonValue] = {}


class ForkOrigin(Wire):
    """The task whose history another one continues, and the number of its iterations in that history."""

    task_id: str
    iteration: int


class Fork(ForkOrigin):
    """The beginning of a forked task: the messages of its origin, with the results of its calls.

    None of them runs again. A message of the client that is among them is not published again. `first`
    is the position of the origin's first message.
    """

    messages: tuple[TranscriptMessage, ...] = ()
    first: int = 0

    @property
    def origin(self) -> ForkOrigin:
        return ForkOrigin(task_id=self.task_id, iteration=self.iteration)


class TaskInput(Wire):
    """Input of a task. The task id is the workflow id. The order is for operators."""

    message: UserMessage
    context_id: str
    owner: str
    created_at: datetime
    agent: Annotated[AgentSpec, AfterValidator(_shared)]
    depth: int = 0
    """0 for the task of a client, 1 for that of a sub-agent, 2 for that of its sub-agent."""
    guards: tuple[GuardRules, ...] = ()
    """Guards of the parent agents, the client's first, which apply besides its own."""
    identity: Identity | None = None
    digest: str = ""
    """Digest of the message's content, for comparison with another message."""
    scheduled: bool = False
    """Started by a schedule: the gateway has no view of it yet, and only the agent's id is set."""
    splits_queues: bool = False
    """Model and tool calls have queues of their own, so that each kind can have its own workers."""
    fork: Fork | None = None
    """History of a fork; a later run of the task has it in its carried state."""
    attachments: str = ""
    """The schedule that stores files or a webhook for it; empty: none."""


class TaskRef(Wire):
    """The run of a task that an activity works for, and the version of its agent at the start.

    It is sent with every call, so fields that the activity can derive are omitted (`named`).
    """

    task_id: str = Field(default="", exclude=True)
    run_id: str = Field(default="", exclude=True)
    context_id: str = ""
    owner: str
    agent_id: str
    agent_version: str = ""

    def named(self, task_id: str, run_id: str) -> Self:
        """Return it with the omitted fields: workflow and run, and the context if the client sent none."""
        context_id = self.context_id or derive_context_id(task_id)
        return self.model_copy(update={"task_id": task_id, "run_id": run_id, "context_id": context_id})

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, str]:
        written: dict[str, str] = write(self)
        if self.context_id == derive_context_id(self.task_id):
            written.pop("context_id", None)
        return written

    @property
    def span_attributes(self) -> dict[str, str]:
        """Attributes of the task on a span."""
        return {
            "gen_ai.agent.id": self.agent_id,
            "gen_ai.conversation.id": self.context_id,
            "everloop.task.id": self.task_id,
        }


class TaskStatus(Wire):
    """A2A 1.0 §4.1.2. `at` is workflow time, UTC. `questions` are the open ones."""

    state: TaskState
    at: datetime
    message: AgentMessage | None = None
    questions: tuple[Question, ...] = ()
    metadata: dict[str, JsonValue] = {}


class Artifact(Wire):
    """An output of a task. A draft (`complete` is false) may still be replaced completely.

    `failed`: the task failed before the draft was complete. `position`: of the reply in the transcript;
    None for artifacts of the store.
    """

    artifact_id: str
    name: str = ""
    description: str = ""
    parts: tuple[Part, ...]
    complete: bool
    failed: bool = False
    position: int | None = None


class TaskView(Wire):
    """The complete A2A view of a task: the fold of its events.

    `version` counts the statuses that `run_id` published; 0 with an empty `run_id` is the view that the
    gateway writes before a worker starts the task. `is_hidden`: not visible to clients (yet): its
    message may be answered at once.
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
    """Answer of the `progress` query: the position of the loop."""

    phase: str
    iteration: int
    usage: Usage
    transcript_length: int
    pending_tools: tuple[str, ...] = ()
    pending_calls: tuple[str, ...] = ()
    """Ids of these calls."""
    inbox: int = 0
    questions: tuple[Question, ...] = ()
    waits_for_resume: str = ""
    """The failure, while the task waits for an operator."""
    last_signal: str = ""
    """Result of an operator's last signal, or why it was refused."""


class TranscriptPage(Wire):
    """Answer of the `transcript` query: messages from position `start` on.

    `next` is where the next page starts, None at the end.
    """

    start: int
    messages: tuple[TranscriptMessage, ...]
    next: int | None = None


class TaskResult(Wire):
    """Result of the workflow."""

    state: TaskState
    iterations: int
    usage: Usage
    excerpt: str
    """The beginning of the answer, which is complete in the artifact `response`."""
    answer: str = ""
    """The complete answer, only for the parent of a sub-agent."""
    closing: str = ""
    """Text of the last status beside it, or in its place; only for a parent."""
    artifacts: tuple[str, ...] = ()
    """Ids of its other artifacts; only for a parent."""
    message: AgentMessage | None = None
    """The message that a client gets instead of a task."""
    digest: str = ""


class Route(Wire):
    """Result of routing a message: a task of its own, or, with `message`, an answer at once.

    `digest` is that of the message (`TaskInput.digest`).
    """

    message: AgentMessage | None = None
    digest: str = ""


# Fields of a task that are set when its schedule begins it.

Begun = TypeVar("Begun", bound=TaskInput)


def begun(task: Begun, task_id: str, at: datetime) -> Begun:
    """Return a task at its beginning.

    One that a schedule began gets its time, a context of its own unless it has one, and its message an
    id.
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
