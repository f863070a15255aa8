"""The agents that the chaos suite harms: tools with effects that can be counted."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta

from everloop import (
    Agent,
    AuthRequired,
    Limits,
    ToolContext,
    handoff,
    prompt,
    request_input,
    sub_agent,
    tool,
    tools,
)
from tests.chaos.census import answer_on_signal
from tests.chaos.orders import Order
from tests.support.agents.chaos import (
    Folder,
    charge,
    charge_or_ask,
    deposit,
    deposit_and_keep,
    deposit_at_last,
    deposit_elsewhere,
    deposit_quickly,
    deposit_together,
    run_charge,
)

AGENTS = "tests.chaos.agents:agents"
"""The module that a worker and a gateway load."""

SEED = "CHAOS_ORDERS"
"""Environment variable: the seed of the run, from which the orders are derived."""

PAUSE = 0.02
"""Seconds between two lines of an artifact."""

LONG = timedelta(minutes=5)
"""A tool that writes artifacts waits in its own time for a store that is away."""

answer_on_signal()


def _order(name: str) -> Order:
    return Order.parse(int(os.environ[SEED]), name)


@tool(needs_approval=True)
async def charge_if_approved(ledger: Folder, context: ToolContext) -> str:
    """Charge when people agree, each time it runs."""
    return await run_charge(ledger, context)


@tool(idempotent=True, timeout=LONG)
async def write_lines(order: str, context: ToolContext) -> str:
    """Write the lines of an order, one by one."""

    async def lines() -> AsyncIterator[str]:
        for line in _order(order).lines:
            yield line
            await asyncio.sleep(PAUSE)

    await context.artifacts.write_file("lines", lines(), media_type="text/plain", filename="lines.txt")
    return "lines"


@tool(idempotent=True, timeout=LONG)
async def write_bytes(order: str, context: ToolContext) -> str:
    """Write the bytes of an order."""
    written = await context.artifacts.write_file("bytes", _order(order).content, filename="bytes.bin")
    return f"{written.parts[0].size} bytes"


@tool(idempotent=True)
async def log_in(context: ToolContext) -> str:
    """Ask for a password, and return its length."""
    password = await context.secret("password")
    if not isinstance(password, str):
        raise AuthRequired("Which password?", "password")
    return f"{len(password)} characters"


@tool(idempotent=True, timeout=timedelta(hours=1))
async def work_on() -> str:
    """Work until the task is cancelled."""
    await asyncio.Event().wait()
    return "done"


agents = [
    Agent(
        id="desk",
        name="Desk",
        description="Does what the script says.",
        model="desk",
        plugins=[
            prompt("Follow the script."),
            tools(deposit, charge, charge_if_approved, write_lines, write_bytes, work_on, log_in),
            tools(deposit_quickly, deposit_at_last, deposit_elsewhere, deposit_and_keep, deposit_together),
            tools(charge_or_ask),
            request_input(),
            sub_agent("clerk"),
            handoff("closer"),
        ],
        limits=Limits(tool_failures=None),
    ),
    Agent(
        id="clerk",
        name="Clerk",
        description="Works for the desk.",
        model="clerk",
        plugins=[prompt("Follow the script."), tools(deposit)],
        limits=Limits(tool_failures=None),
    ),
    Agent(
        id="closer",
        name="Closer",
        description="Goes on where the desk has stopped.",
        model="closer",
        plugins=[prompt("Follow the script."), tools(deposit)],
        limits=Limits(tool_failures=None),
    ),
    Agent(
        id="porter",
        name="Porter",
        description="Answers at once, or makes a task of it.",
        model="porter",
        routing="auto",
        plugins=[prompt("Follow the script."), tools(deposit)],
        limits=Limits(tool_failures=None),
    ),
]
