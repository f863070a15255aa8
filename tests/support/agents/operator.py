"""Agents of the operator tests: tools that can be observed and blocked from outside."""

import asyncio
import os
from datetime import timedelta

from everloop.agents.agent import Agent, Limits
from everloop.agents.peer.peer_plugin import peer
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from tests.support.agents.marks import append_line, until_open

LONG = timedelta(seconds=60)
PEER_URL = "EVERLOOP_TEST_PEER_URL"


@tool(timeout=LONG)
async def pay(ledger: str, gate: str, context: ToolContext) -> str:
    """Write to a ledger, then wait until the gate file exists. Not idempotent."""
    await asyncio.to_thread(append_line, ledger, context.idempotency_key)
    await until_open(gate)
    return "paid"


@tool(timeout=timedelta(hours=2))
async def hang(ledger: str, gate: str, context: ToolContext) -> str:
    """Do the same, with a time limit beyond any test."""
    return await pay.function(ledger, gate, context)


@tool(idempotent=True, timeout=LONG)
async def look_up(ledger: str, gate: str, context: ToolContext) -> str:
    """Do the same as an idempotent tool."""
    await asyncio.to_thread(append_line, ledger, context.idempotency_key)
    await until_open(gate)
    return "found"


@tool(needs_approval=True)
def transfer(amount: int) -> str:
    """Send money after an approval."""
    return f"sent {amount}"


@tool(needs_approval=True, approvers="tasks:approve")
def refund(amount: int) -> str:
    """Give money back after an approval by another person than the requester."""
    return f"refunded {amount}"


agent = Agent(
    id="clerk",
    name="Clerk",
    description="Runs what the scripted model asks for.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(pay, hang, look_up, transfer, refund)],
    limits=Limits(iterations=100),
)

patient = Agent(
    id="patient",
    name="Patient",
    description="Waits for an operator when no model can answer.",
    model="scripted",
    on_model_failure="wait",
)

lead = Agent(
    id="lead",
    name="Lead",
    description="Lets the clerk do it that listens at the address in the environment.",
    model="scripted",
    plugins=[
        prompt("Follow the script."),
        peer(os.environ.get(PEER_URL, "http://127.0.0.1:1"), name="clerk_elsewhere", timeout=LONG),
    ],
)
