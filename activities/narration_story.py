"""What a task has done so far, in lines for a model that tells of it. Pure."""

from collections import deque
from collections.abc import Mapping
from functools import singledispatch

from pydantic import ValidationError

from everloop.workflows.contract.events import (
    EVENT_ADAPTER,
    AgentInvoked,
    IterationStarted,
    Narrated,
    RetryScheduled,
    StatusChanged,
    SubAgentEvent,
    TaskEvent,
    ToolCalled,
    ToolCompleted,
    ToolProgressed,
)
from everloop.workflows.contract.messages import text_of

REMEMBERED = 5
"""How many of the last narrations must not be said again."""

_LINES = 20
_LINE_LENGTH = 160
_KINDS_WITH_LINES = frozenset(
    {"iteration", "tool-call", "tool-progress", "tool-complete", "agent-invoked", "narration", "retry"}
)
"""Kinds of a sub-agent's events that make lines: the others are not even read."""


class Story:
    """The last 20 things that happened, and the last narrations."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._told: deque[str] = deque(maxlen=REMEMBERED)
        self._agents: dict[str, str] = {}
        self._has_news = False

    @property
    def lines(self) -> tuple[str, ...]:
        """What happened, oldest first."""
        return tuple(self._lines)

    @property
    def told(self) -> tuple[str, ...]:
        """The last narrations, oldest first."""
        return tuple(self._told)

    @property
    def has_news(self) -> bool:
        """Whether something has happened since `settle`."""
        return self._has_news

    def take(self, event: TaskEvent) -> None:
        """Take in the next event of the task."""
        if isinstance(event, Narrated):
            self._told.append(event.text)
        elif line := self._line(event):
            self._lines.append(_short(line))
            self._has_news = True

    def settle(self) -> None:
        """What has happened up to here is told."""
        self._has_news = False

    def _line(self, event: TaskEvent) -> str:
        """Return what the event is worth telling; empty for nothing."""
        if isinstance(event, AgentInvoked):
            self._agents[event.task_id.rpartition("/")[2]] = event.agent_id
        if isinstance(event, SubAgentEvent):
            return self._line_of_sub_agent(event)
        return _told(event)

    def _line_of_sub_agent(self, event: SubAgentEvent) -> str:
        inner = _parsed(event.event)
        line = self._line(inner) if inner else ""
        who = self._agents.get(event.path[-1], "a colleague")
        return f"{who}: {line}" if line else ""


@singledispatch
def _told(_event: object) -> str:
    """Return what an event is worth telling; most are worth nothing."""
    return ""


@_told.register
def _(event: IterationStarted) -> str:
    return f"the model thinks about what to do next (turn {event.iteration})"


@_told.register
def _(event: ToolCalled) -> str:
    return f"calls {event.name} with {event.arguments}"


@_told.register
def _(event: ToolProgressed) -> str:
    return f"{event.name} reports: {event.message}"


@_told.register
def _(event: ToolCompleted) -> str:
    return f"{event.name} has ended: {event.outcome}"


@_told.register
def _(event: AgentInvoked) -> str:
    return f"asks the agent {event.agent_id}"


@_told.register
def _(event: RetryScheduled) -> str:
    return f"has to try again: {event.reason}"


@_told.register
def _(event: StatusChanged) -> str:
    said = text_of(event.message.parts) if event.message else ""
    return said and f"says: {said}"


@_told.register
def _(event: Narrated) -> str:
    return event.text


def _parsed(content: Mapping[str, object]) -> TaskEvent | None:
    """Return the event of a sub-agent, None if it is of no interest, or of a kind that came later."""
    if content.get("kind") not in _KINDS_WITH_LINES:
        return None
    try:
        return EVENT_ADAPTER.validate_python(content)
    except ValidationError:
        return None


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= _LINE_LENGTH else f"{line[: _LINE_LENGTH - 1]}…"
