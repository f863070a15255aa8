"""Agents of the acceptance tests: their tools write marks to files that a test counts."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from everloop.agents.agent import Agent, Limits
from everloop.agents.limits import Retries
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from tests.support.agents.marks import append_line, until_open

LONG = timedelta(seconds=60)


async def _write_line(ledger: str, gate: str, context: ToolContext) -> str:
    """Append a line to a ledger at once, then wait for a gate file."""
    await asyncio.to_thread(append_line, ledger, f"{context.task_id}/{context.call_id}")
    await until_open(gate)
    return "written"


write_line = tool(name="write_line", timeout=LONG)(_write_line)


@tool(timeout=3 * LONG)
async def write_slowly(ledger: str, gate: str, context: ToolContext) -> str:
    """Do the same, and take longer."""
    await asyncio.to_thread(append_line, ledger, f"{context.task_id}/{context.call_id}")
    await until_open(gate)
    return "written"


async def _write_once(folder: str, gate: str, context: ToolContext) -> str:
    """Create a file with the call's name unless it exists, then wait for a gate file."""
    name = f"{context.task_id}_{context.call_id}"
    await asyncio.to_thread((Path(folder) / name).touch)
    attempt = Path(folder) / f"{name}.attempt-{context.attempt}"
    await asyncio.to_thread(attempt.touch)
    await until_open(gate)
    return "created"


write_once = tool(name="write_once", idempotent=True, timeout=LONG)(_write_once)
write_quickly = tool(name="write_quickly", idempotent=True, quick=True, timeout=LONG)(_write_once)


@tool
async def report(words: str, context: ToolContext) -> str:
    """Report some words as progress, one by one."""
    for word in words.split():
        await context.progress(word)
    return "reported"


@tool(idempotent=True, retries=Retries(attempts=2, delay=timedelta(0)))
async def stumble(over: str) -> str:
    """Raise in each call."""
    raise RuntimeError(f"it stumbled over {over}")


def _repeat(text: str, times: int) -> str:
    """Return a text several times over."""
    return text * times


repeat = tool(name="repeat", max_result=10_000_000)(_repeat)
repeat_at_length = tool(name="repeat_at_length")(_repeat)
repeat_quickly = tool(name="repeat_quickly", max_result=10_000_000, quick=True, idempotent=True)(_repeat)


agent = Agent(
    id="acceptance",
    name="Acceptance",
    description="Runs what the scripted model asks for.",
    model="scripted",
    plugins=[
        prompt("Follow the script."),
        tools(
            write_line,
            write_slowly,
            write_once,
            write_quickly,
            repeat,
            repeat_at_length,
            repeat_quickly,
            report,
            stumble,
        ),
    ],
    limits=Limits(iterations=400),
)

later_agent = replace(
    agent, plugins=[tools(tool(name="write_line", idempotent=True, timeout=LONG)(_write_line))]
)
"""A later version whose tool is idempotent."""
