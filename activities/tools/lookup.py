"""Finds the tool of a call: in its agent's definition, or with the plugin that listed it for the task."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from everloop.activities.hooks import PluginFailedError, hook_context, in_time
from everloop.activities.tools.messages import message, tool_is_gone, unknown_tool
from everloop.agents.agent import Agent
from everloop.agents.plugins import Plugin
from everloop.agents.tool import Tool, digest_of
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolMessage


@dataclass(frozen=True)
class FoundTool:
    """A tool, and what subscribers are warned of: it may have changed."""

    tool: Tool
    warning: str = ""


async def find_tool(agent: Agent, call: RunToolInput) -> FoundTool | ToolMessage:
    """Return the tool as it is now, or what the model reads if there is none."""
    if call.plugin:
        return await _ask_plugin(agent, call)
    tool = agent.tools.get(call.call.name)
    return FoundTool(tool) if tool else unknown_tool(call.call, await _known_tools(agent, call))


async def _known_tools(agent: Agent, call: RunToolInput) -> list[str]:
    """Return the names of all tools there are now; those of a plugin that does not list them are left out."""
    context, names = hook_context(call.task, call.identity), list(agent.tools)
    for plugin in agent.ordered_plugins:
        if plugin.overrides("list_tools"):
            with suppress(PluginFailedError, TypeError, AttributeError):  # a plugin may return anything
                tools = await in_time(plugin, "list_tools", partial(plugin.list_tools, context))
                names += [tool.name for tool in tools if tool.name not in names]
    return names


async def _ask_plugin(agent: Agent, call: RunToolInput) -> FoundTool | ToolMessage:
    plugin = listing_plugin(agent, call.plugin)
    try:
        tool = await _get_tool(plugin, call) if plugin else None
    except PluginFailedError as error:
        return message(call.call, f"{call.call.name} was not run: {error}", "error")
    if tool is None:
        return tool_is_gone(call.call, call.plugin)
    if digest_of(tool) == call.digest:
        return FoundTool(tool)
    changed = f"the tool {tool.name} of the plugin {call.plugin!r} has changed while the task runs"
    return FoundTool(tool, f"{changed}; it is called as it is now")


async def _get_tool(plugin: Plugin, call: RunToolInput) -> Tool | None:
    """Return the tool of that name.

    Raises:
        PluginFailedError: the plugin raised, took too long, or returned something else.
    """
    context, name = hook_context(call.task, call.identity), call.call.name
    tool = await in_time(plugin, "get_tool", partial(plugin.get_tool, name, context))
    if tool is None or (isinstance(tool, Tool) and tool.name == name):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin may return anything
        return tool
    raise PluginFailedError(plugin.name, "get_tool", f"it returned something else than the tool {name!r}")


def listing_plugin(agent: Agent, name: str) -> Plugin | None:
    """Return the plugin of that name that lists tools, if the agent has it."""
    return next((p for p in agent.plugins if p.name == name and p.overrides("list_tools")), None)
