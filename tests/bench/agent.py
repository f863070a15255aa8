"""The agent of the benchmark: its one tool answers at once with as much as it is asked for."""

from agents.agent import Agent, Limits
from agents.plugins import tools
from agents.tool import tool


@tool(idempotent=True)
async def produce(size: int) -> str:
    """Return a text of `size` bytes."""
    return "x" * size


agent = Agent(
    id="bench",
    name="Bench",
    description="Does what the model of the benchmark orders.",
    model="bench",
    plugins=[tools(produce)],
    limits=Limits(iterations=400),
)
