"""A model of the kind "responses" whose provider is the zoo's, or a script."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from everloop.models.catalogue import Provider
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    ModelRequest,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
)
from everloop.models.responses import Responses
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import ListedTool
from tests.support.servers.scripted_openai import Script, ScriptedOpenAI
from tests.support.servers.zoo.provider import Object, Played

SEARCH = ListedTool(name="search", description="Search.", parameters={"type": "object", "properties": {}})
QUESTION: Object = {"role": "user", "content": "Hi"}
REQUEST = ModelRequest("openai/gpt-5.1", (QUESTION,), (SEARCH,))
WEB_SEARCH = ModelSettings(provider_tools=[{"type": "web_search"}])

ASKING = Played(
    thought="Two look-ups.\n\nKöln 🜁 first.",
    text="I look it up.",
    calls=(("search", '{"query": "Köln 🜁"}'), ("search", '{"query": "Ålesund"}')),
)
ANSWERING = Played(thought="That is enough.", text="Both are cities — 🜁.")


@dataclass
class Rig:
    """A model, and the requests to its provider."""

    model: Responses
    server: ScriptedOpenAI

    async def ask(self, request: ModelRequest = REQUEST, model: str = "gpt-5.1") -> list[Delta]:
        return [delta async for delta in self.model.stream(request, model)]

    @property
    def body(self) -> Object:
        """The last request."""
        return self.server.requests[-1].body


@asynccontextmanager
async def rig_of(script: Script, **fields: object) -> AsyncGenerator[Rig]:
    async with ScriptedOpenAI(script) as server:
        provider = Provider("openai", kind="responses", base_url=server.base_url, key="sk-secret", **fields)  # pyright: ignore[reportArgumentType] -- fields of a test
        model = Responses(provider)
        try:
            yield Rig(model, server)
        finally:
            await model.close()


def text_of(deltas: Sequence[Delta], kind: type[TextDelta | RefusalDelta | ThoughtDelta] = TextDelta) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def ended(deltas: Sequence[Delta]) -> Ended:
    """Return the end, which is the last delta and the only one of its kind."""
    assert [isinstance(delta, Ended) for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    end = deltas[-1]
    assert isinstance(end, Ended)
    return end


def message_of(deltas: Sequence[Delta]) -> Object:
    """Return the reply as the next request has it."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            names[delta.call] = names.get(delta.call, "") + delta.name
            arguments[delta.call] = arguments.get(delta.call, "") + delta.arguments
    opaque = ended(deltas).opaque
    calls: list[JsonValue] = [
        {
            "id": f"r00001c0{number}",
            "type": "function",
            "function": {"name": names[number], "arguments": arguments[number]},
            "opaque": {**opaque.calls.get(number, {})},
        }
        for number in names
    ]
    return {
        "role": "assistant",
        "content": text_of(deltas) or None,
        "tool_calls": calls,
        "opaque": {"source": "openai/gpt-5.1", "fields": {**opaque.fields}},
    }


def following(message: Object, settings: ModelSettings | None = None) -> ModelRequest:
    """Return the request after a reply, with a result for each of its calls."""
    calls = message["tool_calls"]
    assert isinstance(calls, list)
    results: list[Object] = [
        {"role": "tool", "tool_call_id": call["id"], "content": "found"}
        for call in calls
        if isinstance(call, dict)
    ]
    return ModelRequest(
        "openai/gpt-5.1", (QUESTION, message, *results), (SEARCH,), settings or ModelSettings()
    )
