"""Agents whose tasks write a word to all places where a deployment stores data, for tests of deletion."""

from datetime import timedelta

from everloop import (
    Agent,
    AuthRequired,
    Memory,
    ToolContext,
    artifacts,
    narrator,
    request_input,
    sub_agent,
    tool,
    tools,
)

LARGE = 300_000
"""Characters: more than a history or a view holds."""


@tool(idempotent=True)
async def spread(word: str, context: ToolContext) -> str:
    """Put a word into progress, artifacts, stored state, and a long result."""
    await context.progress(f"spreading {word}")
    await context.keep(word)
    await context.artifacts.write_file(f"notes-{word}", word, filename=f"{word}.txt", description=word)
    await context.artifacts.write_file("book", f"{word} " * LARGE)
    return f"{word} was spread {'.' * LARGE}"


@tool(cache=timedelta(hours=1))
def look_up(word: str) -> str:
    """Return the same word in this context."""
    return f"found {word}"


@tool(needs_approval=True)
def approve(word: str) -> str:
    """Be approved."""
    return f"approved {word}"


@tool(idempotent=True)
async def log_in(context: ToolContext) -> str:
    """Ask for a password."""
    if await context.secret("password") is None:
        raise AuthRequired("Which password?", "password")
    return "in"


agents = [
    Agent(
        id="keeper",
        name="Keeper",
        description="Leaves a word everywhere.",
        model="keeper",
        plugins=[
            tools(spread, look_up, approve, log_in),
            artifacts(),
            request_input(),
            narrator(interval=1, model="narrator"),
            sub_agent("helper"),
        ],
        memory=Memory(max_messages=4, strategy="summary"),
    ),
    Agent(
        id="helper",
        name="Helper",
        description="Asks, and leaves a word, too.",
        model="helper",
        plugins=[tools(spread, approve, log_in)],
    ),
    Agent(
        id="porter",
        name="Porter",
        description="Answers at once.",
        model="porter",
        routing="auto",
    ),
]
