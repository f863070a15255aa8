"""The agent of the benchmark: its tools return the requested amounts at once."""

from collections.abc import Iterator
from datetime import timedelta

from bench.orders import prose
from everloop.agents.agent import Agent, Limits, Turn
from everloop.agents.plugins import tools
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.messages import AssistantMessage

MIB = 1024 * 1024


@tool(idempotent=True)
async def produce(size: int) -> str:
    """Return a text of `size` bytes."""
    return prose(size)


@tool(idempotent=True, quick=True)
async def produce_quickly(size: int) -> str:
    """Return the same, as a local activity."""
    return prose(size)


@tool
def ask(context: ToolContext) -> str:
    """Ask a question of a person."""
    if context.answer is None:
        raise InputRequired("Which?", "selection", options=["red", "blue"])
    return str(context.answer)


@tool(idempotent=True, timeout=timedelta(minutes=2))
async def write_file(size: int, context: ToolContext) -> str:
    """Leave a file behind."""
    await context.artifacts.write_file(f"file-{context.task_id}", megabytes(size))
    return "written"


def megabytes(count: int) -> Iterator[bytes]:
    """Yield this number of MiB one by one, all different."""
    for number in range(count):
        yield number.to_bytes(8, "big") * (MIB // 8)


agent = Agent(
    id="bench",
    name="Bench",
    description="Does what the model of the benchmark orders.",
    model="bench",
    plugins=[tools(produce, produce_quickly, ask, write_file)],
    limits=Limits(iterations=400),
)


async def _done(_: Turn) -> AssistantMessage:
    return AssistantMessage(closing="done")


without_model = Agent(id="done", name="Done", description="Is done at once.", respond=_done)
