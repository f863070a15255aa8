"""Marks that the tools of test agents write to files, and gates for which they wait."""

import asyncio
from pathlib import Path


def append_line(ledger: str, line: str) -> None:
    """Append a line to a ledger in one write."""
    with Path(ledger).open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


async def until_open(gate: str) -> None:
    """Wait until the gate file exists; an empty name is not a gate."""
    while gate and not Path(gate).exists():  # noqa: ASYNC110 -- the gate is opened by another process
        await asyncio.sleep(0.02)
