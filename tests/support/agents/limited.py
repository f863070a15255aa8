"""The agent of the tests about limits, models that stand in, and prompts that get too long."""

from everloop import Agent, Compaction, Limits, prompt, tool, tools


@tool
def note(text: str) -> str:
    """Note a text."""
    return f"noted: {text}"


agent = Agent(
    id="limited",
    name="Limited",
    description="Stops by itself.",
    models=["first", "second"],
    plugins=[prompt("Follow the script."), tools(note)],
    limits=Limits(iterations=20, cost=1.0),
    compaction=Compaction("summary"),
)
