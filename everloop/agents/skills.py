"""What an agent says that it can do (A2A 1.0 §4.4.5, AgentSkill)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Skill:
    """One thing that an agent can do, for people and programs that look for agents by their cards.

    `examples` are prompts. Modes that are not given are those of the agent.
    """

    id: str
    name: str
    description: str
    tags: Sequence[str] = ()
    examples: Sequence[str] = ()
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = ()
