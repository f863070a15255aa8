"""Agents on several providers of models."""

from collections.abc import AsyncGenerator

from everloop import Agent, prompt, tool, tools
from everloop.models.catalogue import Provider
from everloop.models.interface import CallDelta, Delta, Ended, Model, ModelRequest, TextDelta


@tool
def search(query: str) -> str:
    """Search the library."""
    return f"{query} is a city"


def _asking(*models: str) -> Agent:
    """Return an agent with its provider's name, or one that asks the worker's model."""
    name = "".join(model.partition("/")[0] for model in models) or "anywhere"
    plugins = [prompt("Look them up."), tools(search)]
    return Agent(id=name, name=name, description="Looks cities up.", models=models, plugins=plugins)


class Parrot(Model):
    """An author's own model: it calls the tool, and repeats the result."""

    async def stream(self, request: ModelRequest, model: str) -> AsyncGenerator[Delta]:
        last = request.messages[-1]
        if last["role"] == "tool":
            yield TextDelta(str(last["content"]))
        else:
            yield CallDelta(0, "search", '{"query": "Köln"}')
        yield Ended("stop")


def make_parrot(provider: Provider) -> Model:
    """Return the model of an entry in models.toml."""
    return Parrot()


of_the_zoo = [
    _asking("gemini/gemini-3.7-flash"),
    _asking("openrouter/anthropic/claude-sonnet-5"),
    _asking("reasoner/gpt-5.1"),
    _asking("parrot/any"),
]
anywhere = _asking()
