"""Plugins: what an agent is composed of."""

from collections.abc import Iterable
from dataclasses import dataclass

from agents.tool import Tool


@dataclass(frozen=True)
class Plugin:
    """Adds system prompts and tools to an agent."""

    prompts: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()


def prompt(text: str) -> Plugin:
    """Put a text at the head of every model call; several become paragraphs of one system message."""
    return Plugin(prompts=(text,))


def tools(*offered: Tool) -> Plugin:
    """Offer tools to the model."""
    return Plugin(tools=offered)


def prompts_of(plugins: Iterable[Plugin]) -> str:
    """Return the system prompt of all plugins, in order; empty if there is none."""
    return "\n\n".join(text for plugin in plugins for text in plugin.prompts)
