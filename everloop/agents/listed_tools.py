"""Tools as a task knows them: what it pins of all, and tells the model of those that plugins list."""

import hashlib
import json

from everloop.agents.tool import Tool
from everloop.workflows.contract.messages import ListedTool
from everloop.workflows.contract.tasks import ToolSpec


def spec_of(tool: Tool, *, asks: bool = False) -> ToolSpec:
    """Return what a task pins of a tool of its agent's definition; `asks`: people may be asked first."""
    return ToolSpec(
        timeout=tool.timeout.total_seconds(),
        task_queue=tool.task_queue,
        fallback=tool.fallback,
        agent=tool.agent,
        handoff=tool.handoff,
        serial=tool.serial,
        asks=asks,
    )


def listed_spec_of(tool: Tool, plugin: str, *, asks: bool = False) -> ToolSpec:
    """Return what a task pins of a tool that a plugin has listed for it."""
    pinned = {"plugin": plugin, "digest": digest_of(tool), "needs_approval": tool.needs_approval is True}
    return spec_of(tool, asks=asks).model_copy(update=pinned)


def listed(tool: Tool) -> ListedTool:
    """Return what the model is told of a tool that a plugin has listed."""
    return ListedTool(name=tool.name, description=tool.description, parameters=tool.parameters)


def digest_of(tool: Tool) -> str:
    """Tell apart what a model may be told of tools: name, description and schema; 12 hex digits."""
    told = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]
