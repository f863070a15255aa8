"""From the tools that an MCP server lists to those that a model is offered."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from mcp_types import Tool as ListedTool

from everloop.agents.mcp.definition import McpDefinition, matches

LONGEST_NAME = 64
"""Characters that providers of models take as the name of a tool."""


def names_of(tools: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the tools of a server by the names that models know them by.

    Models know fewer characters than MCP. Of tools that would come to share a name, each gets one that says
    by a hash which it is, whatever the order of the list.
    """
    plain = {tool: _fitting(prefix + tool) for tool in tools}
    shared = {name for name, count in Counter(plain.values()).items() if count > 1}
    return {
        _distinct(name, tool) if name in shared and name != prefix + tool else name: tool
        for tool, name in plain.items()
    }


def description_of(tool: ListedTool, server: str) -> str:
    """Return what the model reads about a tool."""
    title = tool.title or (tool.annotations and tool.annotations.title)
    return tool.description or title or f"{tool.name}, a tool of {server}"


def is_idempotent(tool: ListedTool, definition: McpDefinition) -> bool:
    """Whether a call may be repeated: as the definition says, else as the server does."""
    hints = tool.annotations
    hinted = hints and (hints.read_only_hint or hints.idempotent_hint)
    return _chosen(tool.name, hinted, setting=definition.idempotent)


def needs_approval(tool: ListedTool, definition: McpDefinition) -> bool:
    """Whether people are asked first: as the definition says, else where the server says "destructive".

    MCP takes a tool without annotations for destructive; most servers have none, and their harmless tools
    would all wait for people. So only what a server says counts.
    """
    hints = tool.annotations
    hinted = hints and hints.destructive_hint and not hints.read_only_hint
    return _chosen(tool.name, hinted, setting=definition.needs_approval)


def _chosen(name: str, hint: object, *, setting: bool | Sequence[str] | None) -> bool:
    if setting is None:
        return bool(hint)
    return setting if isinstance(setting, bool) else matches(name, setting)


def _fitting(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_NAME]


def _distinct(name: str, tool: str) -> str:
    mark = f"_{hashlib.sha256(tool.encode()).hexdigest()[:6]}"
    return name[: LONGEST_NAME - len(mark)] + mark
