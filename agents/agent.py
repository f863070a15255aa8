"""An agent: the definition a user writes."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from agents.errors import AgentDefinitionError
from agents.plugins import Plugin, prompts_of
from agents.tool import Tool
from workflows.contract.tasks import AgentSpec, ToolSpec


@dataclass(frozen=True)
class Limits:
    """Where a task stops by itself. `iterations` counts model calls (default 30)."""

    iterations: int = 30


@dataclass(frozen=True)
class Agent:
    """What an agent is called, which model it asks, and what it can do.

    `model` None means the worker's default (EVERLOOP_MODEL). At most `parallel_tools` tools of a task run
    at once. `deduplicate` False makes every SendMessage a new task, even one with a repeated messageId.

    Raises:
        AgentDefinitionError: an unusable id or limit, or two tools of one name.
    """

    id: str
    name: str
    description: str
    model: str | None = None
    plugins: tuple[Plugin, ...] | list[Plugin] = ()
    limits: Limits = field(default_factory=Limits)
    parallel_tools: int = 5
    deduplicate: bool = True

    def __post_init__(self) -> None:
        if self.parallel_tools < 1 or self.limits.iterations < 1:
            raise AgentDefinitionError(f"agent {self.id!r}: parallel_tools and iterations start at 1")
        if not self.id or not self.id.replace("-", "").replace("_", "").isalnum():
            raise AgentDefinitionError(
                f"agent id {self.id!r}: use letters, digits, '-' and '_', because it stands in addresses"
            )
        names = Counter(tool.name for plugin in self.plugins for tool in plugin.tools)
        if twice := [name for name, count in names.items() if count > 1]:
            raise AgentDefinitionError(f"agent {self.id!r}: more than one tool is called {twice[0]!r}")

    @cached_property
    def system_prompt(self) -> str:
        """All prompts of the plugins, in order; empty if there is none."""
        return prompts_of(self.plugins)

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """The tools by name, in the order of the plugins."""
        return {tool.name: tool for plugin in self.plugins for tool in plugin.tools}

    @cached_property
    def spec(self) -> AgentSpec:
        """The part of the definition that a task pins when it starts."""
        return AgentSpec(
            id=self.id,
            model=self.model,
            max_iterations=self.limits.iterations,
            max_parallel_tools=self.parallel_tools,
            tools={tool.name: ToolSpec(timeout=tool.timeout.total_seconds()) for tool in self.tools.values()},
        )
