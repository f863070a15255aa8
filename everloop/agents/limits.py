"""Where a task stops, and how it makes room."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from everloop.agents.errors import AgentDefinitionError, ToolDefinitionError
from everloop.workflows.contract.names import WORKER_QUEUES
from everloop.workflows.contract.tasks import MemorySpec

# What an agent remembers of a context.


@dataclass(frozen=True)
class Memory:
    """What a task recalls of the earlier tasks of its context: the newest messages that fit.

    At most `max_messages` (default 20) of about `max_tokens` tokens (default 8,000). What does not fit is
    left out ("window"), or the model sums it up once the answer is given: in one summary ("summary"), or in
    summaries of summaries ("hierarchical"), which keep more of a long conversation. `auto_compact` False:
    nothing is summed up by itself.

    Raises:
        AgentDefinitionError: an unknown strategy, or no room for a message.
    """

    max_messages: int = 20
    max_tokens: int = 8000
    strategy: Literal["window", "summary", "hierarchical"] = "window"
    auto_compact: bool = True

    def __post_init__(self) -> None:
        if self.strategy not in {"window", "summary", "hierarchical"}:
            raise AgentDefinitionError(
                f"Memory: there is no strategy {self.strategy!r}; "
                "choose 'window', 'summary' or 'hierarchical'"
            )
        for name, count in (("max_messages", self.max_messages), ("max_tokens", self.max_tokens)):
            if count < 1:
                raise AgentDefinitionError(f"Memory: {name} start at 1, not at {count}; memory=None for none")

    @property
    def spec(self) -> MemorySpec:
        """What a task pins of it."""
        return MemorySpec(
            max_messages=self.max_messages,
            max_tokens=self.max_tokens,
            strategy=self.strategy,
            auto_compact=self.auto_compact,
        )


# How long anything may take that an agent or a tool sets a time for.

LONGEST = timedelta(days=3650)
"""Ten years: no end in sight, and yet a date that calendars and timers can hold."""

TOO_LONG = f"give at most {LONGEST.days} days"


@dataclass(frozen=True)
class Limits:
    """Where a task stops by itself; None means no limit.

    `iterations` counts model calls (default 30), `tokens` those of prompts and replies together, `cost` is in
    US dollars, `wall_clock` runs from when a worker takes the task, waiting for people included.
    `tool_failures` counts iterations in a row in which no tool call worked (default 3). What sub-agents use
    counts too; a task may start `sub_agents` tasks of them (default 50).

    Raises:
        AgentDefinitionError: a limit that no task could keep.
    """

    iterations: int = 30
    tokens: int | None = None
    cost: float | None = None
    wall_clock: timedelta | None = None
    tool_failures: int | None = 3
    sub_agents: int | None = 50

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise AgentDefinitionError(f"Limits: iterations start at 1, not at {self.iterations}")
        for name, count in (
            ("tokens", self.tokens),
            ("tool_failures", self.tool_failures),
            ("sub_agents", self.sub_agents),
        ):
            if count is not None and count < 1:
                raise AgentDefinitionError(f"Limits: {name} start at 1, not at {count}; None means no limit")
        if self.cost is not None and not self.cost > 0:
            raise AgentDefinitionError(f"Limits: cost is {self.cost}; give more than 0, or None for no limit")
        if self.wall_clock is not None and self.wall_clock <= timedelta(0):
            raise AgentDefinitionError(f"Limits: wall_clock is {self.wall_clock}; give the task some time")
        if self.wall_clock is not None and self.wall_clock > LONGEST:
            raise AgentDefinitionError(f"Limits: wall_clock is {self.wall_clock}; {TOO_LONG}, or None")


@dataclass(frozen=True)
class Compaction:
    """How old messages make room when the prompt gets too long; the first message always stays.

    "window" leaves them out, "summary" lets the model sum them up. `prompt_tokens`: do so as soon as a prompt
    is about this long (default: when the provider refuses it).

    Raises:
        AgentDefinitionError: an unknown strategy, or a prompt of no tokens.
    """

    strategy: Literal["window", "summary"] = "window"
    prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in {"window", "summary"}:
            raise AgentDefinitionError(
                f"Compaction: there is no strategy {self.strategy!r}; choose 'window' or 'summary'"
            )
        if self.prompt_tokens is not None and self.prompt_tokens < 1:
            raise AgentDefinitionError(
                f"Compaction: prompt_tokens start at 1, not at {self.prompt_tokens}; None waits for a refusal"
            )


# How often a tool that failed is tried again.


@dataclass(frozen=True)
class Retries:
    """A tool that raises, or takes too long, is tried again, up to `attempts` times in all (default 3).

    The first retry waits `delay` (default 1 s), each later one `factor` times longer (default 2), none longer
    than `longest` (default 1 min); every wait is up to a fifth shorter or longer than that.

    Raises:
        ToolDefinitionError: no attempt at all, or waits that shrink or end before they begin.
    """

    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ToolDefinitionError(f"Retries: attempts start at 1 (no retry), not at {self.attempts}")
        if not self.factor >= 1:
            raise ToolDefinitionError(f"Retries: factor is {self.factor}; give 1 or more")
        if not timedelta(0) <= self.delay <= self.longest:
            raise ToolDefinitionError(
                f"Retries: delay is {self.delay}; give one from 0 to longest ({self.longest})"
            )
        if self.longest > LONGEST:
            raise ToolDefinitionError(f"Retries: longest is {self.longest}; {TOO_LONG}")

    def delay_after(self, failures: int) -> timedelta:
        """Return how long to wait after so many failures (1 or more), before chance is added."""
        try:
            return min(self.longest, self.delay * self.factor ** (failures - 1))
        except OverflowError:
            return self.longest


# Queues of their own, for agents and tools whose calls need other workers, or not too many at once.

PRIORITIES = range(1, 6)
"""Temporal's: the first goes first."""

_MOST_BYTES = 200  # Temporal has 255 for the name, and puts its own marks around it


def problem_of_queue(name: str) -> str:
    """Return what is wrong with the name of a task queue; empty if nothing is."""
    if not name.strip() or "," in name or not name.isprintable() or len(name.encode()) > _MOST_BYTES:
        return f"task_queue is {name!r}; give up to {_MOST_BYTES} bytes without commas"
    if name in WORKER_QUEUES:
        return f"task_queue is {name!r}, which is what `everloop worker --queues` calls a queue of all agents"
    return ""
