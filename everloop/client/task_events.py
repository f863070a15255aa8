"""Events and results of tasks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Self

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_json
from typing_extensions import TypeVar  # with defaults

from everloop.client.content import Artifact
from everloop.client.errors import ClientError, ServerError


class TaskState(StrEnum):
    """A2A 1.0 §4.1.3, without the prefix TASK_STATE_."""

    UNSPECIFIED = "unspecified"
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
        """Whether the task has ended for good."""
        return self in {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}

    @property
    def is_waiting(self) -> bool:
        """Whether the task needs an answer before it goes on."""
        return self in {TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of a task so far, including its sub-agents."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """In US dollars; None for an unknown price."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool call of the model, with its result."""

    id: str
    name: str
    arguments: JsonValue = None
    """As JSON; the model's text if it is not JSON."""
    result: str | None = None
    """None: it has not ended. A long one is truncated (`is_cut`); `url` is the address of the complete
    one."""
    outcome: str = ""
    """ok, error, invalid, unknown or rejected; empty while it runs."""
    is_cut: bool = False
    url: str = ""

    @property
    def is_error(self) -> bool:
        """Whether it has ended without success."""
        return self.outcome not in {"", "ok"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a task."""

    task_id: str = ""
    event_id: str = ""
    """Position for `watch(after=…)`; empty: the server has none, or this event shares that of a later one."""
    at: datetime | None = None
    path: tuple[str, ...] = ()
    """The calls that lead down to the sub-agent of the event; empty: the task's own event."""


@dataclass(frozen=True, kw_only=True)
class TextDelta(Event):
    """A piece of the answer.

    `starts_over`: earlier text is void, and the answer begins again with this text (the model is called
    again, or goes on with tools; the text may be empty).
    """

    text: str
    starts_over: bool = False
    artifact_id: str = "response"


@dataclass(frozen=True, kw_only=True)
class Thought(Event):
    """A piece of the model's reasoning; `is_last`: it ends here."""

    text: str
    is_last: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(Event):
    """The model calls a tool. It may wait before it runs: for an approval, for other calls."""

    call_id: str
    name: str
    arguments: JsonValue = None


@dataclass(frozen=True, kw_only=True)
class ToolCallEnded(Event):
    """A tool call has ended, possibly with an error (`call.is_error`)."""

    call: ToolCall

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """Progress of the task: from a tool (`call_id`, `tool`), or from the narrator of the agent."""

    text: str
    call_id: str = ""
    tool: str = ""


@dataclass(frozen=True, kw_only=True)
class StatusChanged(Event):
    """The task has a new status, with its message."""

    state: TaskState
    text: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, kw_only=True)
class ArtifactChanged(Event):
    """An artifact has begun, grown, been replaced or completed. `artifact` is its content so far."""

    artifact: Artifact


@dataclass(frozen=True, kw_only=True)
class Question(Event):
    """A question of the task that needs an answer before it goes on (`Client.answer`, `Client.approve`)."""

    id: str = ""
    """Empty: the server's questions have no ids, and the next message is the answer."""
    kind: str = "clarification"
    """confirmation (yes or no), clarification (text), selection (one of `options`), data (a value that fits
    `json_schema`) or auth (a secret)."""
    text: str = ""
    options: tuple[str, ...] = ()
    json_schema: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    tool: str = ""
    """The tool that asks, or that waits for approval."""
    arguments: JsonValue = None
    purpose: str = "input"
    """input: the tool asks; approval: it waits for approval; outcome: it is unknown whether it ran."""
    approvers: str = "owner"
    """owner: the task's owner answers; another value is the scope of those who do."""
    timeout: float | None = None
    """Seconds after which the default counts as the answer, or else a rejection; None: no timeout."""


@dataclass(frozen=True, kw_only=True)
class OtherEvent(Event):
    """Any other event of the events extension, unchanged: iteration, retry, usage, others."""

    kind: str
    data: Mapping[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Reconnecting(Event):
    """The connection was lost, and is made again in `delay` seconds. No event is lost, none comes twice."""

    attempt: int
    delay: float
    reason: str


Data = TypeVar("Data", default=JsonValue, covariant=True)  # noqa: PLC0105 -- it stands in signatures
"""The type of an agent's data answer."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Result(Generic[Data]):
    """The current state of a task, or an answer without one."""

    id: str
    """Of the task; empty: the agent answered without a task."""
    context_id: str = ""
    state: TaskState = TaskState.UNSPECIFIED
    text: str = ""
    """The answer: the texts of the artifact `response`, or the message of a server without one."""
    data: Data | None = None
    """The answer of an agent that answers with data; None without one. It is JSON; in tests of an agent
    with a pydantic model (`everloop.testing`) it is an instance of the model."""
    artifacts: tuple[Artifact, ...] = ()
    """All artifacts but the answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    """None: the server does not report it."""
    questions: tuple[Question, ...] = ()
    """The questions that the task waits for."""
    events: tuple[Event, ...] = field(default=(), repr=False)
    """The events of this call, in order, with the last change of each artifact; empty for a task that was
    only read."""
    error: str | None = None
    """Why the task failed, was rejected or canceled, for people; None otherwise."""
    reason: str = ""
    """The same for programs: ModelRefused, IterationLimit, …; also of a truncated answer."""
    updated_at: datetime | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    @property
    def is_done(self) -> bool:
        """Whether the task has ended, in any state."""
        return self.state.is_terminal

    def data_as(self, model: type[Model]) -> Model:
        """Return the answer as an instance of a pydantic model.

        >>> class Weather(BaseModel):
        ...     degrees: int
        >>> Result(id="weather-1", state=TaskState.COMPLETED, data={"degrees": 21}).data_as(Weather)
        Weather(degrees=21)

        Raises:
            TaskNotCompletedError: as of `raise_for_state`.
            ServerError: the answer does not match; the message says where.
        """
        data = self.raise_for_state().data
        if isinstance(data, model):
            return data
        try:
            return model.model_validate_json(to_json(data))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            raise ServerError(
                f"the answer of task {self.id} is no {model.__name__}: {place}: {problem['msg']}"
            ) from None

    def raise_for_state(self) -> Self:
        """Return the result if the task is completed.

        Raises:
            TaskNotCompletedError: it has failed, was rejected or canceled, waits for an answer, or works.
        """
        if self.state is TaskState.COMPLETED:
            return self
        why = self.error or "; ".join(question.text for question in self.questions)
        said = f"task {self.id} is {self.state}" + (f": {why}" if why else "")
        raise TaskNotCompletedError(said, self)


@dataclass(frozen=True, kw_only=True)
class Done(Event):
    """The last event: the task has ended, or waits for an answer."""

    result: Result


class WaitTimeoutError(ClientError, TimeoutError):
    """The task takes longer than the timeout, and goes on; `result` is its last known state."""

    def __init__(self, message: str, result: Result[Any]) -> None:
        super().__init__(message)
        self.result = result


class TaskNotCompletedError(ClientError):
    """The task is not completed; `result` is its state."""

    def __init__(self, message: str, result: Result[Any]) -> None:
        super().__init__(message, reason=result.reason)
        self.result = result


def arguments_of(text: JsonValue) -> JsonValue:
    """Parse the arguments of a call as JSON; return other text unchanged."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
