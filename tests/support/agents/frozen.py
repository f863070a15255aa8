"""An agent whose tool ignores its cancellation, and writes when its suspended worker resumes."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool
from everloop.agents.tool_context import ToolContext
from everloop.workflows.contract.messages import TextPart
from tests.support.agents.marks import until_open

_late = set[asyncio.Task[None]]()


async def _work(folder: str, context: ToolContext) -> str:
    """Write to all stores; the first attempt starts, and repeats its writes when the gate is open."""
    await _write_everywhere(context)
    if context.attempt == 1:
        writing = asyncio.create_task(_write_late(folder, context))  # not cancelled with its tool
        _late.add(writing)
        await asyncio.to_thread((Path(folder) / "begun").touch)
        await asyncio.shield(writing)
    return f"by {context.attempt}"


work = tool(name="work", idempotent=True, timeout=timedelta(minutes=5))(_work)
work_quickly = tool(name="work_quickly", idempotent=True, quick=True, timeout=timedelta(minutes=5))(_work)


async def _write_late(folder: str, context: ToolContext) -> None:
    await until_open(f"{folder}/gate")
    for write in _writes(context):
        try:
            await write()
        except Exception as error:  # noqa: BLE001 -- it stops at nothing
            with (Path(folder) / "refused").open("a") as refused:
                refused.write(f"{type(error).__name__}\n")
    await asyncio.to_thread((Path(folder) / "ended").touch)


async def _write_everywhere(context: ToolContext) -> None:
    for write in _writes(context):
        await write()


def _writes(context: ToolContext) -> list[Callable[[], Awaitable[object]]]:
    said = f"by {context.attempt}"

    async def write_file() -> None:
        async with context.artifacts.open_file("file") as file:
            await file.write(said)

    return [
        lambda: context.progress(said),
        lambda: context.keep(said),
        lambda: context.artifacts.create("created", [TextPart(text=said)]),
        lambda: context.artifacts.create("deleted", [TextPart(text=said)]),
        write_file,
        lambda: context.artifacts.write_file("blob", said.encode() * 100_000),
        lambda: context.artifacts.delete("deleted"),
    ]


agent = Agent(
    id="frozen",
    name="Frozen",
    description="Writes everywhere.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(work, work_quickly)],
)
