"""An agent whose tools write artifacts: large ones, slow ones, and ones that wait in the middle."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from random import Random

from everloop import Agent, Limits, ToolContext, artifacts, prompt, tool, tools
from tests.support.agents.marks import until_open

ARTIFACT_AGENT = "tests.support.agents.artifacts:agent"
LONG = timedelta(seconds=90)
MIB = 1024 * 1024


def big_content(megabytes: int) -> Iterator[bytes]:
    """Yield the same bytes in each call, one MiB at a time."""
    for seed in range(megabytes):
        yield Random(seed).randbytes(MIB)  # noqa: S311 -- the same bytes again, not secret ones


def line(number: int) -> str:
    return f"line {number} · {'é' * (number % 7)}\n"


@tool(idempotent=True, timeout=LONG)
async def write_big(artifact_id: str, megabytes: int, gate: str, context: ToolContext) -> str:
    """Write a file of random bytes; before its last MiB wait for a gate file."""
    written = await context.artifacts.write_file(
        artifact_id, _pieces(megabytes, gate), media_type="application/octet-stream", filename="big.bin"
    )
    return f"{written.parts[0].size} bytes"


@tool(idempotent=True)
async def write_table(artifact_id: str, rows: int, context: ToolContext) -> str:
    """Write a dataset, slowly enough that clients get it in pieces."""

    async def numbered() -> AsyncIterator[dict[str, int]]:
        for number in range(rows):
            yield {"number": number}
            await asyncio.sleep(0.1)

    await context.artifacts.write_rows(artifact_id, numbered())
    return "written"


@tool(idempotent=True, timeout=LONG)
async def write_lines(artifact_id: str, count: int, gate: str, context: ToolContext) -> str:
    """Write lines, one by one; in the middle wait for a gate file."""
    await context.artifacts.write_file(
        artifact_id, _lines(count, gate), media_type="text/plain", filename="lines.txt"
    )
    return "written"


async def _pieces(megabytes: int, gate: str) -> AsyncIterator[bytes]:
    for number, piece in enumerate(big_content(megabytes), start=1):
        if number == megabytes:
            await until_open(gate)
        yield piece


async def _lines(count: int, gate: str) -> AsyncIterator[str]:
    for number in range(count):
        if number == count // 2:
            await until_open(gate)
        yield line(number)
        await asyncio.sleep(0.001)


agent = Agent(
    id="artifacts",
    name="Artifacts",
    description="Writes artifacts.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(write_big, write_lines, write_table), artifacts()],
    limits=Limits(iterations=50),
)
