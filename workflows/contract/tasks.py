"""A task as its clients and its operators see it."""

from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from workflows.contract.messages import AgentMessage, Message, Part, Usage, UserMessage
from workflows.contract.wire import Wire


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


TERMINAL_STATES = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})


class ToolSpec(Wire):
    """What the workflow has to know of a tool to run it. `timeout` is in seconds."""

    timeout: float = 30.0


class AgentSpec(Wire):
    """The part of an agent's definition that a task pins when it starts.

    `model` is None when the worker's own default (EVERLOOP_MODEL) applies. `tools` lists every tool by
    its name. A tool that the model invents is not in it and ends as a tool error.
    """

    id: str
    model: str | None = None
    max_iterations: int = 30
    max_parallel_tools: int = 5
    tools: dict[str, ToolSpec] = {}


class TaskInput(Wire):
    """How a task starts. The task id is the workflow id."""

    context_id: str
    owner: str
    agent: AgentSpec
    message: UserMessage
    created_at: datetime


class TaskRef(Wire):
    """Which run of which task an activity works for."""

    task_id: str
    run_id: str
    context_id: str
    owner: str
    agent_id: str


class TaskStatus(Wire):
    """A2A 1.0 §4.1.2. `at` is workflow time, UTC."""

    state: TaskState
    at: datetime
    message: AgentMessage | None = None
    metadata: dict[str, JsonValue] = {}


class Artifact(Wire):
    """An output of a task. A draft (`complete` is false) may still be replaced as a whole."""

    artifact_id: str
    name: str = ""
    parts: tuple[Part, ...]
    complete: bool


class TaskView(Wire):
    """The whole A2A-facing task: the fold of its events.

    `version` counts the statuses that `run_id` published; 0 with an empty `run_id` is what the gateway
    writes before a worker has seen the task.
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


class TaskProgress(Wire):
    """Answer of the `progress` query: where the loop stands."""

    phase: str
    iteration: int
    usage: Usage
    transcript_length: int
    pending_tools: tuple[str, ...] = ()
    inbox: int = 0


class TaskResult(Wire):
    """What the workflow returns. The answer itself is the artifact `response`; this is its beginning."""

    state: TaskState
    iterations: int
    usage: Usage
    excerpt: str
