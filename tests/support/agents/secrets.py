"""An agent whose task writes a word to all places where a deployment stores content."""

import asyncio
from datetime import timedelta
from pathlib import Path

from everloop import Agent, AuthRequired, Limits, Memory, ToolContext, artifacts, prompt, tool, tools

SECRET_AGENT = "tests.support.agents.secrets:agent"
LARGE = 300_000
"""Characters of a result that is too large for a history."""

_TIMEOUT = timedelta(seconds=60)


@tool(idempotent=True, timeout=_TIMEOUT)
async def spread(word: str, folder: str, context: ToolContext) -> str:
    """Put a word into progress, artifacts, stored state and the result, with a wait in between."""
    await context.progress(f"spreading {word}")
    await context.keep(word)
    await context.artifacts.write_file("notes", word, filename=f"{word}.txt", description=word)
    await context.artifacts.write_file("book", f"{word} " * 50_000)
    await asyncio.to_thread((Path(folder) / f"attempt-{context.attempt}").touch)
    while not (Path(folder) / "gate").exists():  # noqa: ASYNC110 -- another process makes it
        await asyncio.sleep(0.02)
    return f"{word} was spread {'.' * LARGE}"


@tool(idempotent=True)
async def log_in(context: ToolContext) -> str:
    """Ask for a password."""
    if await context.secret("password") is None:
        raise AuthRequired("Which password?", "password")
    return "in"


@tool
def stumble(word: str) -> str:
    """Fail with the word."""
    raise ValueError(f"stumbled over {word}")


agent = Agent(
    id="spreader",
    name="Spreader",
    description="Spreads words.",
    model="scripted",
    plugins=[prompt("Follow the script."), tools(spread, stumble, log_in), artifacts()],
    memory=Memory(),
    limits=Limits(iterations=50),
)
