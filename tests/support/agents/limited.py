"""The agent of the tests about limits, models that stand in, and prompts that get too long."""

from everloop import Agent, Compaction, Limits, Retries, prompt, tool, tools


@tool
def note(text: str) -> str:
    """Note a text."""
    return f"noted: {text}"


@tool(fallback="note")
def note_online(text: str) -> str:
    """Note a text where it cannot be noted."""
    raise ConnectionError("nobody answers")


@tool(retries=Retries(attempts=2))
def fail(text: str) -> str:
    """Fail."""
    raise ValueError(text)


agent = Agent(
    id="limited",
    name="Limited",
    description="Stops by itself.",
    models=["first", "second"],
    plugins=[prompt("Follow the script."), tools(note, note_online, fail)],
    limits=Limits(iterations=20, cost=1.0, tool_failures=2),
    compaction=Compaction("summary"),
)
