"""Where a task stops, and how it makes room."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from everloop.agents.durations import LONGEST, TOO_LONG
from everloop.agents.errors import AgentDefinitionError


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
