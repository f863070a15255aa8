"""A model of the kind "responses" whose provider is the zoo's, or a script."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pydantic import JsonValue

from everloop.models import conformance
from everloop.models.catalogue import Provider
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    Model,
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    PromptTooLongError,
    RefusalDelta,
    TextDelta,
    ThoughtDelta,
    UnreadableReplyError,
)
from everloop.models.responses import Responses
from everloop.workflows.contract.messages import ListedTool
from everloop.workflows.contract.settings import ModelSettings
from tests.support.servers.scripted_openai import Answer, ReceivedRequest, Script, ScriptedOpenAI, Wire
from tests.support.servers.zoo.provider import Fault, Object, Played
from tests.support.servers.zoo.responses import OpenAIResponses

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
    """A model, and what its provider was sent."""

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


_MEANS: Mapping[type[ModelError], Fault] = {
    ModelBusyError: OpenAIResponses.faults["busy"],
    ModelDownError: OpenAIResponses.faults["overloaded in stream"],
    ModelRefusedError: OpenAIResponses.faults["quota in stream"],
    PromptTooLongError: OpenAIResponses.faults["too long in stream"],
    UnreadableReplyError: Fault("unreadable", "made up", Wire([b"data: hello\n\n"])),
}


class ResponsesStage(conformance.Stage):
    """Plays replies as OpenAI does."""

    def __init__(self) -> None:
        super().__init__()
        self.model = OpenAIResponses.model

    @asynccontextmanager
    async def playing(self, *replies: conformance.Played) -> AsyncGenerator[Model]:
        provider = OpenAIResponses(*(_MEANS[one.failure] if one.failure else _played(one) for one in replies))
        provider.secret = next((one.opaque for one in replies if one.opaque), "")
        silent = replies[0].then == "silent"

        def answer(received: ReceivedRequest) -> Answer:
            self.requests.append(received.body)
            wire = provider(received)
            assert isinstance(wire, Wire)
            return replace(wire, pieces=wire.pieces[:-1], is_silent=True) if silent else wire

        async with rig_of(answer) as rig:
            self._server = rig.server
            yield rig.model

    async def wait_until_left(self) -> None:
        await self._server.requests[0].disconnected.wait()


def _played(one: conformance.Played) -> Played:
    usage = (one.usage.input_tokens, one.usage.output_tokens)
    reason = one.reason if one.reason in {"length", "content_filter"} else ""
    written = {"text": one.text, "thought": one.thought, "calls": one.calls, "refusal": one.refusal}
    return Played(**written, reason=reason, usage=usage, cut=one.then == "cut")  # pyright: ignore[reportArgumentType] -- one of two reasons
