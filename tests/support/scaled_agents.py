"""An agent whose tools wait on two queues."""

import os

from agents.agent import Agent
from agents.plugins import prompt, tools
from agents.tool import tool

GPU = os.environ.get("SCALED_QUEUE", "gpu")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(task_queue=GPU)
def paint(text: str) -> str:
    """Paint what a text says."""
    return f"painted {text}"


agent = Agent(
    id="scaled",
    name="Scaled",
    description="Runs what the scripted model asks for, on several queues.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(add, paint)],
)
