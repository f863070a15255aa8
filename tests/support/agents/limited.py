"""The agent of the tests about limits."""

from everloop import Agent, Limits, prompt, tool, tools


@tool
def note(text: str) -> str:
    """Note a text."""
    return f"noted: {text}"


agent = Agent(
    id="limited",
    name="Limited",
    description="Stops by itself.",
    model="first",
    plugins=[prompt("Follow the script."), tools(note)],
    limits=Limits(iterations=20, cost=1.0),
)
