"""An MCP server whose tools leave marks in a file, then wait for another one. Run it as `full.py`."""

import asyncio
import sys
from pathlib import Path

from fastmcp import FastMCP
from mcp_types import ToolAnnotations

server = FastMCP("ledger")


async def _mark(ledger: str, gate: str, line: str) -> str:
    await asyncio.to_thread(_append, Path(ledger), line)
    while not Path(gate).exists():  # noqa: ASYNC110 -- the gate is opened by another process
        await asyncio.sleep(0.02)
    return f"{line} written"


def _append(ledger: Path, line: str) -> None:
    with ledger.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


@server.tool
async def append(ledger: str, gate: str, line: str) -> str:
    """Append a line to a ledger at once, then wait for a gate file."""
    return await _mark(ledger, gate, line)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def ensure(ledger: str, gate: str, line: str) -> str:
    """Append a line to a ledger, which may be done again, then wait for a gate file."""
    return await _mark(ledger, gate, line)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
