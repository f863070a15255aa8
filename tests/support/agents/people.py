"""An agent whose tools wait for people, and write their answers to ledgers that a test reads."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, Field, JsonValue

from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, request_input, tools
from everloop.agents.question_exceptions import AuthRequired, InputKind, InputRequired
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from tests.support.agents.marks import until_open

LONG = timedelta(seconds=60)
SECRET_NAME = "vault-token"


class Seats(BaseModel):
    """The answer to the question of kind "data"."""

    adults: int = Field(ge=1, le=8)
    near_window: bool = False


def _append(ledger: str, line: JsonValue) -> None:
    with Path(ledger).open("a", encoding="utf-8") as lines:
        lines.write(f"{json.dumps(line)}\n")


def _is_large(arguments: Mapping[str, JsonValue]) -> bool:
    amount = arguments["amount"]
    return isinstance(amount, int | float) and amount > 1000


@tool(needs_approval=_is_large)
def pay(amount: float, to: str, ledger: str) -> str:
    """Pay an amount; people approve the large ones."""
    _append(ledger, [amount, to])
    return f"paid {amount:g} to {to}"


@tool(needs_approval=True)
def wipe(disk: str, ledger: str) -> str:
    """Wipe a disk; people approve every call."""
    _append(ledger, disk)
    return f"wiped {disk}"


@tool
def book(kind: InputKind, ledger: str, context: ToolContext) -> str:
    """Book something: ask one question of this kind, then record the answer."""
    if not context.answers:
        raise _question(kind)
    answer = context.answers[-1]
    _append(ledger, [answer.value, answer.by])
    return f"booked {json.dumps(answer.value)}"


def _question(kind: InputKind) -> InputRequired:
    match kind:
        case "selection":
            return InputRequired("At what time?", kind, options=["18:00", "20:00"])
        case "data":
            return InputRequired("Which seats?", kind, schema=Seats)
        case "confirmation":
            return InputRequired("Is it a birthday?", kind)
        case "clarification":
            return InputRequired("Under which name?", kind)


@tool(idempotent=True, timeout=LONG)
async def open_vault(ledger: str, context: ToolContext) -> str:
    """Ask for the token of the vault, wait for a gate file, then use it, and repeat it everywhere."""
    if await context.secret(SECRET_NAME) is None:
        raise AuthRequired("Please give the token of the vault.", SECRET_NAME)
    Path(f"{ledger}.reached").touch()
    await until_open(f"{ledger}.gate")
    token = str(await context.secret(SECRET_NAME))
    await context.progress(f"opening with {token}")
    await asyncio.to_thread(_append, ledger, fingerprint(token))
    return f"opened with {token}"


def fingerprint(token: str) -> str:
    """Return a fingerprint that identifies the secret without showing it."""
    return hashlib.sha256(token.encode()).hexdigest()


agent = Agent(
    id="desk",
    name="Harness",
    description="Runs what the scripted model asks for, when people agree.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(pay, wipe, book, open_vault), request_input()],
)
