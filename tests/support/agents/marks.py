"""What tools of the tests' agents leave in files, so that a test sees it, and what they wait for."""

import asyncio
from pathlib import Path


def append_line(ledger: str, line: str) -> None:
    """Write a line at the end of a ledger, in one piece."""
    with Path(ledger).open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


async def until_open(gate: str) -> None:
    """Wait until the gate file is there; an empty name is no gate."""
    while gate and not Path(gate).exists():  # noqa: ASYNC110 -- the gate is opened by another process
        await asyncio.sleep(0.02)
