"""Agents whose tasks have the measured shapes."""

import asyncio
from datetime import timedelta

from bench.agent import ask, produce, produce_quickly, write_file
from everloop import Agent, sub_agent, tool, tools


@tool(idempotent=True, timeout=timedelta(minutes=1))
async def wait(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "waited"


writer = Agent(id="writer", name="Writer", description="Answers.", model="bench")
agent = Agent(
    id="costs",
    name="Costs",
    description="Does what the model says.",
    model="bench",
    plugins=[tools(produce, produce_quickly, write_file, ask, wait), sub_agent(writer)],
)
agents = [agent, writer]
