"""Which media types the card of an agent names. Pure."""

from collections.abc import Sequence

from everloop.agents.agent import Agent

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
"""Any file: what the model cannot be given itself, tools can read."""

_CONCRETE = {"image/*": ("image/png", "image/jpeg", "image/gif", "image/webp")}
"""What OpenAI's models take for a range of types (their guide to images and vision)."""


def input_modes(agent: Agent) -> Sequence[str]:
    """Return media types, not ranges of them: A2A 1.0 §4.4.1 wants types, and clients compare them as such.

    Unless the agent names its own, what the model is given as it is comes before "any file", so that clients
    see what is best.
    """
    if agent.input_modes:
        return agent.input_modes
    taken = [mode for pattern in agent.model_takes for mode in _CONCRETE.get(pattern, (pattern,))]
    return list(dict.fromkeys([TEXT, JSON, *(mode for mode in taken if "*" not in mode), BYTES]))


def output_modes(agent: Agent) -> Sequence[str]:
    """Return the agent's own, or text, JSON, and any file that a tool may write."""
    return agent.output_modes or (TEXT, JSON, BYTES)
