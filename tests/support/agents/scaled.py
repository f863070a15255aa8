"""An agent with tools on two queues, and one that runs on the second, with priority."""

import asyncio
import os

from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool

GPU = os.environ.get("SCALED_QUEUE", "gpu")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(task_queue=GPU)
def paint(text: str) -> str:
    """Paint what a text says."""
    return f"painted {text}"


@tool
async def event_loop() -> str:
    """Return the library of the worker's event loop."""
    return type(asyncio.get_running_loop()).__module__


scaled = Agent(
    id="scaled",
    name="Scaled",
    description="Runs what the scripted model asks for, on several queues.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(add, paint, event_loop)],
)

apart = Agent(
    id="apart",
    name="Apart",
    description="Asks its model on a queue of its own, before others do.",
    model="scripted",
    task_queue=GPU,
    priority=2,
)

agents = [scaled, apart]
