"""The agent of the tests in which Redis is set back: it writes a report, and asks."""

import asyncio
from pathlib import Path

from everloop import Agent, ToolContext, request_input, tool, tools
from tests.support.agents.marks import until_open


@tool(idempotent=True)
async def write_report(gate: str, context: ToolContext) -> str:
    """Say so in a file beside a gate, and write a report once it is open."""
    await asyncio.to_thread(Path(f"{gate}.begun").touch)
    await until_open(gate)
    await context.artifacts.write_data("report", {"rows": 3})
    return "written"


agent = Agent(
    id="rolled-back",
    name="Rolled back",
    description="Writes reports, and asks.",
    model="scripted",
    plugins=[tools(write_report), request_input()],
)
