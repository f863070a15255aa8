"""An MCP server for tests, made with fastmcp. Run as `python full.py stdio`, or `… http PORT`."""

import asyncio
import base64
import os
import sys
from collections import defaultdict
from itertools import count

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from fastmcp.tools.base import Tool
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolListChangedNotification,
)

CONTENT = b"\x89PNG\r\n\x1a\npixel"

server = FastMCP("tests")

_READS = ToolAnnotations(read_only_hint=True)
_REPEATS = ToolAnnotations(idempotent_hint=True)
_DESTROYS = ToolAnnotations(destructive_hint=True)
_BASE64 = base64.b64encode(CONTENT).decode()

_shapes = count(1)
_events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@server.tool(annotations=_READS)
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=_REPEATS)
def pid() -> int:
    """Return the id of this process."""
    return os.getpid()


@server.tool(annotations=_DESTROYS)
def wipe() -> str:
    """Destroy everything."""
    return "gone"


@server.tool
async def wait_for(event: str) -> str:
    """Wait until an event has happened."""
    await _events[event].wait()
    return event


@server.tool
async def happen(event: str) -> str:
    """Trigger an event."""
    _events[event].set()
    return event


@server.tool
async def hang(name: str) -> str:
    """Wait until this is cancelled, which triggers an event."""
    _events[f"{name} began"].set()
    try:
        await asyncio.Event().wait()
    finally:
        _events[f"{name} was cancelled"].set()
    return "never"


@server.tool
async def steps(context: Context, text: str = "") -> str:
    """Report progress, and wait until it was received."""
    for step in (1, 2):
        await context.report_progress(step, 2, text or None)
        await _events[f"step {step} heard"].wait()
    return "done"


@server.tool
def files() -> CallToolResult:
    """Return files of all kinds."""
    notes = TextResourceContents(uri="test://notes/a.md", mime_type="text/markdown", text="# A")
    return CallToolResult(
        content=[
            TextContent(text="Here they are:"),
            ImageContent(data=_BASE64, mime_type="image/png"),
            AudioContent(data=_BASE64, mime_type="audio/mpeg"),
            EmbeddedResource(resource=notes),
            EmbeddedResource(resource=BlobResourceContents(uri="test://blobs/b", blob=_BASE64)),
            ResourceLink(uri="test://linked/c.txt", name="C", description="the third"),
            ResourceLink(uri="test://linked/missing", name="D"),
        ]
    )


@server.resource("test://linked/c.txt", mime_type="text/plain")
def linked() -> str:
    """Return the file that `files` links to."""
    return "linked text"


@server.tool
def structured() -> dict[str, list[int]]:
    """Return data."""
    return {"numbers": [1, 2]}


@server.tool
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool
def header(name: str) -> str:
    """Return a header of the request."""
    return get_http_headers(include_all=True).get(name, "none")


@server.tool
def trace_context(context: Context) -> str:
    """Return the trace context that came in the metadata of the call."""
    asked = context.request_context
    return str(((asked and asked.meta) or {}).get("traceparent"))


@server.tool
async def die() -> str:
    """End the process."""
    os._exit(1)


@server.tool
async def reshape(context: Context) -> str:
    """Give the tool `shape` another schema, and send a notification."""
    await reshape_quietly()
    await context.send_notification(ToolListChangedNotification())
    return "done"


@server.tool
async def reshape_quietly() -> str:
    """Give the tool `shape` another schema without a notification."""
    server.local_provider.remove_tool("shape")
    _offer_shape(f"shape {next(_shapes)}")
    return "done"


def _offer_shape(default: str) -> None:
    def shape(kind: str = default) -> str:
        """Shape it."""
        return kind

    server.add_tool(Tool.from_function(shape))


_offer_shape("shape 0")

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
