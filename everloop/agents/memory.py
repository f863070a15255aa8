"""What an agent remembers of a context."""

from dataclasses import dataclass
from typing import Literal

from everloop.agents.errors import AgentDefinitionError
from everloop.workflows.contract.tasks import MemorySpec


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
