"""The agent of the tests about the outage and the recovery of a provider."""

from everloop import Agent, prompt

agent = Agent(
    id="two",
    name="Two providers",
    description="Asks another provider where the first is away.",
    models=["office/m", "openai/m"],
    plugins=[prompt("Answer.")],
)
