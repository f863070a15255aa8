"""The tools that plugins list for one task: asked for once, and then kept."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from temporalio.exceptions import ApplicationError

from everloop.activities.hooks import PluginFailedError, in_time
from everloop.agents.agent import Agent
from everloop.agents.hooks import HookContext
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, listed, listed_spec_of
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CREATE_TASK
from everloop.workflows.contract.messages import ToolsMessage
from everloop.workflows.contract.tasks import ToolSpec

LISTING_TIMEOUT = 60.0
"""Seconds that one plugin may take to list its tools: it may have to start a server."""

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that providers of models take."""


@dataclass(frozen=True)
class TaskTools:
    """What the plugins list, in their order, and what is wrong with some of it."""

    message: ToolsMessage
    specs: dict[str, ToolSpec]
    warnings: tuple[str, ...]


async def list_task_tools(
    agent: Agent, context: HookContext, *, seconds: float = LISTING_TIMEOUT
) -> TaskTools:
    """Ask the plugins that list tools, side by side. Of several tools of one name the first one counts.

    `seconds` are what one plugin may take (default 60).

    Raises:
        ApplicationError: `ToolsUnavailable` (retryable): a plugin cannot list them now; `PluginFailed`: what
            it returned are no tools.
    """
    plugins = [plugin for plugin in agent.ordered_plugins if plugin.overrides("list_tools")]
    # All are let come to their end: one that is stopped while it connects may leave something behind.
    offers = await asyncio.gather(
        *(_ask(plugin, context, seconds) for plugin in plugins), return_exceptions=True
    )
    for offer in offers:
        if isinstance(offer, BaseException):
            raise offer
    found = [each for offer in offers if not isinstance(offer, BaseException) for each in offer]
    return _sorted_out(agent, found)


async def _ask(plugin: Plugin, context: HookContext, seconds: float) -> list[tuple[Plugin, Tool]]:
    try:
        offered = await in_time(plugin, "list_tools", partial(plugin.list_tools, context), seconds)
    except PluginFailedError as error:
        raise ApplicationError(str(error), type=failures.TOOLS_UNAVAILABLE) from None
    if not isinstance(offered, list | tuple) or not all(isinstance(tool, Tool) for tool in offered):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may return anything
        raise PluginFailedError(plugin.name, "list_tools", "it returned no list of tools").as_failure()
    return [(plugin, tool) for tool in offered]


def _sorted_out(agent: Agent, found: Sequence[tuple[Plugin, Tool]]) -> TaskTools:
    kept: dict[str, tuple[Plugin, Tool]] = {}
    warnings: list[str] = []
    for plugin, tool in found:
        if problem := _problem_of(agent, tool, kept):
            warnings.append(f"the tool {tool.name!r} of the plugin {plugin.name!r} is left out: {problem}")
        else:
            kept[tool.name] = plugin, tool
    tools = tuple(listed(tool) for _, tool in kept.values())
    return TaskTools(
        message=ToolsMessage(tools=tools),
        specs={
            name: listed_spec_of(tool, plugin.name, asks=agent.may_ask(tool))
            for name, (plugin, tool) in kept.items()
        },
        warnings=tuple(warnings),
    )


def _problem_of(agent: Agent, tool: Tool, kept: dict[str, tuple[Plugin, Tool]]) -> str:
    """Return why a tool cannot be offered; empty if it can."""
    if not _FIT.fullmatch(tool.name):
        return "models take names of 1 to 64 letters, digits, '_' and '-'"
    if tool.name in agent.tools or tool.name == CREATE_TASK:
        return "the agent has a tool of that name"
    if tool.name in kept:
        return f"the plugin {kept[tool.name][0].name!r} has listed one of that name before"
    return ""
