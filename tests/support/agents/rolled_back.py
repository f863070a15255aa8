"""The agent of the tests that set Redis back: it writes a report, and asks."""

import asyncio
from pathlib import Path

from everloop import Agent, ToolContext, request_input, tool, tools
from tests.support.agents.marks import until_open


@tool(idempotent=True)
async def write_report(gate: str, context: ToolContext) -> str:
    """Write a mark beside a gate, and a report once the gate is open."""
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
