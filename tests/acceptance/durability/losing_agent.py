"""An agent whose task uses all data in Redis: calls of each kind, progress, an artifact, a question."""

from pathlib import Path

from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, tools
from everloop.agents.question_exceptions import InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.messages import TextPart


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(f"{line}\n")


@tool
async def pay(ledger: str, context: ToolContext) -> str:
    """Pay once, and leave a receipt."""
    await context.progress("paying")
    await context.artifacts.create("receipt", [TextPart(text="paid")])
    _write(ledger, "paid")
    return "paid"


@tool(idempotent=True)
async def look(ledger: str) -> str:
    """Look up what was paid."""
    return "seen"


@tool
async def book(ledger: str, context: ToolContext) -> str:
    """Book what a person says."""
    if not context.answers:
        raise InputRequired("Which?", "clarification")
    _write(ledger, f"booked {context.answers[-1].value}")
    return "booked"


agent = Agent(
    id="losing",
    name="Losing",
    description="d",
    model="scripted",
    plugins=[prompt("p"), tools(pay, look, book)],
)
