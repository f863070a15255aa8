"""An agent whose tools raise a `BaseException` that is not an `Exception`."""

import argparse
import asyncio
import sys

from everloop import Agent, tool, tools
from tests.support.agents.marks import append_line


async def _parse() -> None:
    argparse.ArgumentParser(exit_on_error=True).parse_args(["--unknown"])


@tool
async def parse() -> str:
    """Parse arguments in an asyncio task, as argparse does: it exits."""
    await asyncio.gather(_parse())
    return "parsed"


@tool
async def exit_worker(ledger: str) -> str:
    """Exit in a callback of the event loop, where no code can catch it, and wait."""
    append_line(ledger, "called")
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.Event().wait()
    return ""


agent = Agent(
    id="exits",
    name="Exits",
    description="Its tools exit.",
    model="scripted",
    plugins=[tools(parse, exit_worker)],
)
