"""An agent to put into images; yours take its place."""

from everloop import Agent, prompt, tool, tools


@tool(idempotent=True)
def temperature(city: str) -> str:
    """Tell the temperature of a city in degrees Celsius."""
    return {"Oslo": "4", "Rome": "17"}.get(city, "unknown")


agent = Agent(
    id="weather",
    name="Weather",
    description="Knows the temperature of two cities.",
    plugins=[prompt("Answer in one sentence. Ask the tools, and never guess."), tools(temperature)],
)
