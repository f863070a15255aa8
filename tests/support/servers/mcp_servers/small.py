"""A small MCP server for tests, made with the official SDK, which may notify clients of changed tools.

Run as `python small.py stdio`, or `… http PORT`. The descriptions of its tools count its lists. The
annotations of the tool `erase` are JSON in the file that HINTS names in its environment.
"""

import asyncio
import os
import sys
from collections import defaultdict
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import Tool, ToolAnnotations

_events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


class CountingServer(MCPServer):
    """A server whose tool descriptions count how often its tools were listed."""

    listed = 0

    async def list_tools(self) -> list[Tool]:
        self.listed += 1
        tools = await super().list_tools()
        said = {"description": f"list {self.listed}"}
        return [
            tool.model_copy(update=said if tool.name != "promise" else {**said, "output_schema": PROMISED})
            for tool in map(_hinted, tools)
        ]


def _hinted(tool: Tool) -> Tool:
    if tool.name != "erase" or "HINTS" not in os.environ:
        return tool
    hints = ToolAnnotations.model_validate_json(Path(os.environ["HINTS"]).read_bytes())
    return tool.model_copy(update={"annotations": hints})


PROMISED = {"type": "object", "properties": {"text": {"pattern": "^(a+)+$"}}}
"""A schema with a pattern that takes Python's `re` practically for ever."""


server = CountingServer("small")


@server.tool()
async def change(context: Context) -> str:
    """Notify clients that the tools have changed."""
    await context.notify_tools_changed()
    return "done"


@server.tool()
def erase(ledger: str) -> str:
    """Write a line into a file; the tool's annotations may change."""
    with Path(ledger).open("a") as lines:
        lines.write("erased\n")
    return "erased"


@server.tool()
async def pid() -> int:
    """Return the id of this process."""
    return os.getpid()


@server.tool()
async def promise(end: str) -> dict[str, str]:
    """Return a result that may not fit the listed schema."""
    return {"text": "a" * 41 + end}


@server.tool()
async def hang(name: str) -> str:
    """Wait for ever; the start is an event."""
    _events[f"{name} began"].set()
    await asyncio.Event().wait()
    return "never"


@server.tool()
async def wait_for(event: str) -> str:
    """Wait until an event has happened."""
    await _events[event].wait()
    return event


@server.tool()
async def happen(event: str) -> str:
    """Trigger an event."""
    _events[event].set()
    return event


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
