"""Agents whose tasks have the shapes that are weighed; what the model says decides on the shape."""

import asyncio
import json
from datetime import timedelta

from pydantic import JsonValue

from bench.agent import ask, produce, produce_quickly
from bench.orders import prose
from everloop import Agent, ToolContext, sub_agent, tool, tools
from tests.support.servers.scripted_openai import ReceivedRequest, Reply, tool_call

RESULT_BYTES = 2_000
FILE_BYTES = 1_000_000
ANSWER = prose(200)

CALLS: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "work": ("produce", {"size": RESULT_BYTES}),
    "quick": ("produce_quickly", {"size": RESULT_BYTES}),
    "file": ("write_file", {"size": FILE_BYTES}),
    "ask": ("ask", {}),
    "delegate": ("writer", {"request": "answer"}),
    "wait": ("wait", {"seconds": 10}),
}
"""The first word of a message → the tool that the model calls, and with what."""

ITERATIONS = {"work": 4, "quick": 4}
"""The same → how many calls there are before the answer; else one."""


@tool(idempotent=True)
async def write_file(size: int, context: ToolContext) -> str:
    """Leave a file behind."""
    await context.artifacts.write_file(f"file-{context.task_id}", iter([b"x" * size]))
    return "written"


@tool(idempotent=True, timeout=timedelta(minutes=1))
async def wait(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "waited"


def model(received: ReceivedRequest) -> Reply:
    """Reply as the last message of the user orders."""
    conversation = received.conversation
    last = max(at for at, message in enumerate(conversation) if message["role"] == "user")
    word = str(conversation[last]["content"]).split()[0]
    done = sum(message["role"] == "tool" for message in conversation[last:])
    if word not in CALLS or done == ITERATIONS.get(word, 1):
        return Reply([ANSWER])
    name, arguments = CALLS[word]
    return Reply([tool_call(name, json.dumps(arguments))])


writer = Agent(id="writer", name="Writer", description="Answers.", model="scripted")
agent = Agent(
    id="costs",
    name="Costs",
    description="Does what the model says.",
    model="scripted",
    plugins=[tools(produce, produce_quickly, write_file, ask, wait), sub_agent("writer")],
)
agents = [agent, writer]
