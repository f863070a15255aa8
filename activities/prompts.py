"""The system prompts of one model call."""

from dataclasses import dataclass
from functools import partial

from everloop.activities.hooks import PluginFailedError, in_time
from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext
from everloop.agents.plugins import Plugin, SystemPrompt

_METHOD = "its system prompt"


@dataclass(frozen=True)
class Prompts:
    """What stands before the history, as paragraphs of one message, and after it, each as a message."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


NO_PROMPTS = Prompts()


async def write_prompts(agent: Agent, context: HookContext) -> Prompts:
    """Return the prompts in the order of the plugins; empty ones are left out.

    Raises:
        PluginFailedError: who writes one raised, took too long, or wrote no text.
    """
    before: list[str] = []
    after: list[str] = []
    for plugin in agent.ordered_plugins:
        for prompt in plugin.prompts:
            if text := await _write(plugin, prompt, context):
                (before if prompt.place == "before" else after).append(text)
    return Prompts(tuple(before), tuple(after))


async def _write(plugin: Plugin, prompt: SystemPrompt, context: HookContext) -> str:
    if isinstance(prompt.text, str):
        return prompt.text
    return _checked(plugin, await in_time(plugin, _METHOD, partial(prompt.text, context)))


def _checked(plugin: Plugin, written: object) -> str:
    if isinstance(written, str):
        return written
    raise PluginFailedError(plugin.name, _METHOD, f"it is a {type(written).__name__}, not a text")
