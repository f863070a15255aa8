"""Tools of the chaos tests, with effects that can be counted."""

import asyncio
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from pydantic import BaseModel, Field

from everloop.agents.limits import Retries
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext

WORK = 0.5
"""Seconds that a tool works before its effect, and again after it: the time in which it can be killed."""

Folder = Annotated[str, Field(description="The folder of the ledger.")]


class Ledger:
    """The effects of tools, in files, which outlive killed processes.

    `deposits` has a file for each idempotency key, `charges` a line for each effect of a tool that is not
    idempotent, `attempts` a line for each start of a deposit.
    """

    def __init__(self, folder: Path) -> None:
        self._deposits = folder / "deposits"
        self._charges = folder / "charges"
        self._attempts = folder / "attempts"

    def open(self) -> None:
        """Create an empty ledger."""
        self._deposits.mkdir(parents=True)
        self._charges.touch()
        self._attempts.touch()

    def deposit(self, key: str, owner: str) -> str:
        """Take a deposit unless its key has one; return the receipt of the first."""
        name = key.replace("/", "_")
        draft = self._deposits / f".{uuid4()}"
        draft.write_text(f"{owner} {uuid4()}", encoding="utf-8")
        with suppress(FileExistsError):
            os.link(draft, self._deposits / name)
        draft.unlink()
        return (self._deposits / name).read_text(encoding="utf-8").split()[1]

    def charge(self, owner: str) -> str:
        """Charge, regardless of earlier charges, and return the receipt."""
        receipt = str(uuid4())
        _append(self._charges, f"{owner} {receipt}")
        return receipt

    def begin(self, owner: str) -> None:
        """Record the start of a deposit."""
        _append(self._attempts, owner)

    def is_first(self, name: str) -> bool:
        """Return True for the first call with this name."""
        try:
            (self._deposits / f".first-{name.replace('/', '_')}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def deposits(self) -> list[tuple[str, str]]:
        """Return owner and receipt of each deposit, once for each key."""
        files = (path for path in self._deposits.iterdir() if not path.name.startswith("."))
        return [_entry(path.read_text(encoding="utf-8")) for path in files]

    def charges(self) -> list[tuple[str, str]]:
        """Return owner and receipt of each charge, once for each effect."""
        return [_entry(line) for line in self._charges.read_text(encoding="utf-8").splitlines()]

    def attempts(self) -> list[str]:
        """Return the owner of each started deposit, once for each start."""
        return self._attempts.read_text(encoding="utf-8").splitlines()


def _entry(text: str) -> tuple[str, str]:
    owner, receipt = text.split()
    return owner, receipt


def _append(path: Path, line: str) -> None:
    """Append a line in one write: after a kill it is complete or missing."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _owner(context: ToolContext) -> str:
    return f"{context.task_id}/{context.call_id}"


@tool(idempotent=True)
async def deposit(ledger: Folder, context: ToolContext) -> str:
    """Take a deposit, once for each call."""
    return await run_deposit(ledger, context)


async def run_deposit(ledger: str, context: ToolContext) -> str:
    """Work, take a deposit, and work again."""
    books = Ledger(Path(ledger))
    books.begin(_owner(context))
    await asyncio.sleep(WORK)
    receipt = books.deposit(context.idempotency_key, _owner(context))
    await asyncio.sleep(WORK)
    return receipt


@tool(idempotent=True, quick=True)
async def deposit_quickly(ledger: Folder, context: ToolContext) -> str:
    """Take a deposit inside the workflow."""
    books = Ledger(Path(ledger))
    books.begin(_owner(context))
    return books.deposit(context.idempotency_key, _owner(context))


@tool(idempotent=True, retries=Retries(attempts=9, delay=timedelta(seconds=0.2)))
async def deposit_at_last(ledger: Folder, context: ToolContext) -> str:
    """Fail at first, then take a deposit."""
    if Ledger(Path(ledger)).is_first(_owner(context)):
        raise ConnectionError("the bank is away")
    return await run_deposit(ledger, context)


@tool(fallback="deposit")
async def deposit_elsewhere(ledger: Folder) -> str:
    """Fail, so that another tool takes the deposit."""
    raise ConnectionError(f"the bank of {ledger} has closed")


@tool(idempotent=True)
async def deposit_and_keep(ledger: Folder, context: ToolContext) -> str:
    """Take a deposit, and keep its receipt for the attempts to come."""
    if isinstance(context.kept, str):
        return context.kept
    receipt = await run_deposit(ledger, context)
    await context.keep(receipt)
    await asyncio.sleep(WORK)
    return receipt


class Share(BaseModel):
    """One deposit of several."""

    ledger: Folder
    name: str


@tool(idempotent=True, batch=True)
async def deposit_together(shares: list[Share]) -> list[str]:
    """Take several deposits at once, each under its name."""
    for share in shares:
        Ledger(Path(share.ledger)).begin(share.name)
    await asyncio.sleep(WORK)
    return [Ledger(Path(share.ledger)).deposit(share.name, share.name) for share in shares]


@tool
async def charge(ledger: Folder, context: ToolContext) -> str:
    """Charge in each run."""
    return await run_charge(ledger, context)


@tool(unknown_outcome="ask")
async def charge_or_ask(ledger: Folder, context: ToolContext) -> str:
    """Charge in each run; people are asked if a lost run may have charged."""
    return await run_charge(ledger, context)


async def run_charge(ledger: str, context: ToolContext) -> str:
    """Work, charge, and work again."""
    await asyncio.sleep(WORK)
    receipt = Ledger(Path(ledger)).charge(_owner(context))
    await asyncio.sleep(WORK)
    return receipt
