"""An agent that decides by itself whether a message becomes a task, for acceptance tests."""

from everloop.agents.agent import Agent
from everloop.agents.plugins import prompt, tools
from everloop.agents.tool import tool


@tool(idempotent=True)
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


agent = Agent(
    id="deciding",
    name="Deciding",
    description="Answers at once, or creates a task.",
    model="scripted",
    plugins=[prompt("Be brief."), tools(look_up)],
    routing="auto",
)
