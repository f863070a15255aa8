"""Replies of the Responses API, from a provider that behaves like OpenAI."""

import json
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from everloop.agents.plugins import prompt
from everloop.models.interface import (
    CallDelta,
    Delta,
    Ended,
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    PromptTooLongError,
    ProviderToolDelta,
    TextDelta,
    ThoughtDelta,
    UnreadableReplyError,
)
from everloop.workflows.contract.events import ArtifactChunk, ProviderToolRan
from everloop.workflows.contract.messages import Usage
from tests.support.fakes.responses import ANSWERING, ASKING, WEB_SEARCH, ended, rig_of, text_of
from tests.support.rigs.model_rig import agent, model_rig
from tests.support.servers.scripted_openai import Whole, Wire
from tests.support.servers.zoo.provider import Means, Object, Played
from tests.support.servers.zoo.responses import OpenAIResponses


async def test_a_reply_comes_as_deltas() -> None:
    """A reply comes as deltas; thoughts have an id and an end, and the end has model and usage."""
    async with rig_of(OpenAIResponses(ASKING)) as rig:
        deltas = await rig.ask()
    thoughts = [delta for delta in deltas if isinstance(delta, ThoughtDelta)]
    assert text_of(deltas, ThoughtDelta) == ASKING.thought
    assert {delta.thought_id for delta in thoughts} == {"rs_00"}
    assert [delta.last for delta in thoughts] == [False] * (len(thoughts) - 1) + [True]
    end = ended(deltas)
    assert (end.reason, end.model, end.response_id) == ("tool_calls", "gpt-5.1-2026-11-01", "resp_1")
    usage = Usage(input_tokens=7, output_tokens=3, cached_tokens=3, reasoning_tokens=1)
    assert end.usage == usage


ENDINGS: dict[str, tuple[Played, str]] = {
    "all tokens for reasoning": (Played(thought="Hm.", reason="length"), "length"),
    "half a call": (Played(calls=(("search", '{"que'),), reason="length"), "length"),
    "refusal": (Played(refusal="I cannot help with that."), "refusal"),
}


@pytest.mark.parametrize(("played", "reason"), ENDINGS.values(), ids=ENDINGS)
async def test_a_reply_says_how_it_ended(played: Played, reason: str) -> None:
    """A reply has the reason of its end; reasoning without a result is not sent back."""
    async with rig_of(OpenAIResponses(played)) as rig:
        end = ended(await rig.ask())
    assert end.reason == reason
    assert not played.thought or end.opaque.fields == {}


async def test_subscribers_hear_of_tools_of_the_provider() -> None:
    """Tools of the provider are published with begin, end and detail before the answer, not in the reply."""
    searching = agent(prompt("Be brief."))
    async with model_rig(OpenAIResponses(ANSWERING), agent=searching, kind="responses") as rig:
        rig.port = rig.port_to(OpenAIResponses.model)
        reply = await rig.run(rig.changed(settings=WEB_SEARCH))
        events = await rig.events()
    sources: JsonValue = [{"type": "url", "url": "https://example.com/koeln"}]
    action: Object = {"type": "search", "query": "Köln", "queries": ["Köln"], "sources": sources}
    told = [event for event in events if isinstance(event, ProviderToolRan | ArtifactChunk)]
    ran = ProviderToolRan(iteration=1, id="ws_0", name="web_search", status="started")
    assert told[:2] == [ran, ran.model_copy(update={"status": "completed", "detail": {"action": action}})]
    assert isinstance(told[2], ArtifactChunk)
    assert (reply.text, reply.tool_calls) == (ANSWERING.text, ())


ERRORS: dict[Means, type[ModelError]] = {
    "busy": ModelBusyError,
    "down": ModelDownError,
    "refused": ModelRefusedError,
    "filtered": ModelRefusedError,
    "too long": PromptTooLongError,
    "unreadable": UnreadableReplyError,
}


@pytest.mark.parametrize("name", OpenAIResponses.faults)
async def test_failures_are_taken_for_what_they_are(name: str) -> None:
    """Failures, also within a stream, are classified without the provider's text."""
    fault = OpenAIResponses.faults[name]
    async with rig_of(lambda _: fault.wire) as rig:
        with pytest.raises(ModelError) as caught:
            await rig.ask()
    assert type(caught.value) is ERRORS[fault.means]


# Servers that largely follow OpenAI.


def event(kind: str, **fields: JsonValue) -> Object:
    return {"type": f"response.{kind}", **fields}


def added(**fields: JsonValue) -> Object:
    return event("output_item.added", item=fields)


def done(item: Mapping[str, JsonValue], **fields: JsonValue) -> Object:
    return event("output_item.done", item={**item, **fields})


def frames(*events: Mapping[str, JsonValue]) -> Wire:
    return Wire([f"data: {json.dumps(event)}\n\n".encode() for event in events])


COMPLETED = event("completed", response={"id": "r", "model": "m", "status": "completed"})
CUT = event("incomplete", response={"id": "r", "model": "m", "status": "incomplete"})
ALIVE: Object = {"type": "keepalive"}
REASONING: Object = {"type": "reasoning", "id": "rs"}
CALL: Object = {"type": "function_call", "status": "completed", "call_id": "fc_1", "name": "search"}
CALL["arguments"] = "{}"
MESSAGE: Object = {"type": "message", "id": "m1", "content": [{"type": "output_text", "text": "Hi"}]}


def called(number: int = 0) -> list[Delta]:
    return [CallDelta(number, "search"), CallDelta(number, arguments="{}")]


WIRES: dict[str, tuple[Wire | Whole, list[Delta]]] = {
    "llama.cpp: no index, no id of a call": (
        frames(
            added(**REASONING, summary=[]),
            event("reasoning_text.delta", item_id="rs", delta="Hm."),
            done(REASONING, encrypted_content=""),
            added(**{**CALL, "arguments": ""}),
            event("function_call_arguments.delta", item_id="fc_1", delta="{}"),
            done(CALL),
            COMPLETED,
        ),
        [
            ThoughtDelta("Hm.", "rs"),
            ThoughtDelta("", "rs", last=True),
            *called(),
            Ended("tool_calls", "m", "r"),
        ],
    ),
    "a model that thinks unseen": (
        frames(
            added(**REASONING, summary=[]),
            ALIVE,
            done(REASONING, summary=[]),
            done(MESSAGE),
            ALIVE,
            COMPLETED,
        ),
        [ThoughtDelta("", "rs"), TextDelta("Hi"), Ended("stop", "m", "r")],
    ),
    "Copilot: another id in each event": (
        frames(
            {**added(type="message", id="1"), "output_index": 0},
            event("output_text.delta", output_index=0, item_id="2", delta="Hi"),
            {**done(MESSAGE, id="3"), "output_index": 0},
            COMPLETED,
        ),
        [TextDelta("Hi"), Ended("stop", "m", "r")],
    ),
    "items without deltas": (
        frames(done(CALL), done(CALL), COMPLETED),
        [*called(0), *called(1), Ended("tool_calls", "m", "r")],
    ),
    "a search that does not end": (
        frames({**added(type="web_search_call", id="w"), "output_index": 0}, CUT),
        [
            ProviderToolDelta("w", "web_search", "started"),
            ProviderToolDelta("w", "web_search", "failed", {}),
            Ended("length", "m", "r"),
        ],
    ),
    "a whole response": (
        Whole({"id": "r", "model": "m", "status": "completed", "error": None, "output": [MESSAGE, CALL]}),
        [TextDelta("Hi"), *called(), Ended("tool_calls", "m", "r")],
    ),
}


@pytest.mark.parametrize(("wire", "expected"), WIRES.values(), ids=WIRES)
async def test_other_servers_are_understood(wire: Wire | Whole, expected: list[Delta]) -> None:
    """Missing fields and deviations of other servers are tolerated."""
    async with rig_of([wire]) as rig:
        assert await rig.ask() == expected


async def test_what_is_large_is_neither_told_nor_kept() -> None:
    """A large image of the provider is left out of events and histories; the rest is sent back."""
    output: list[Object] = [
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "sealed"},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "A" * 70_000},
        {**MESSAGE, "phase": "final_answer"},
    ]
    async with rig_of([Whole({"status": "completed", "output": [*output]})]) as rig:
        deltas = await rig.ask()
    tools = [delta for delta in deltas if isinstance(delta, ProviderToolDelta)]
    assert tools == [ProviderToolDelta("ig", "image_generation", "completed")]
    assert ended(deltas).opaque.fields == {"items": [{"text": 2, "phase": "final_answer"}]}


BROKEN: dict[str, tuple[Wire | Whole, type[ModelError]]] = {
    "a stream that ends early": (frames(event("created")), ModelDownError),
    "another API": (frames({"choices": []}), UnreadableReplyError),
    "no JSON": (Wire([b"data: hello\n\n"]), UnreadableReplyError),
    "a page": (
        Wire([b"\n<html>", b"Sign in\n</html>"], headers={"content-type": "text/html"}),
        UnreadableReplyError,
    ),
    "another JSON": (Whole({"hello": "world"}), UnreadableReplyError),
    "an error as a whole": (Whole({"error": {"message": "overloaded"}}), ModelDownError),
    "a call that nobody here can answer": (frames(added(type="computer_call", id="c")), ModelRefusedError),
}


@pytest.mark.parametrize(("wire", "error"), BROKEN.values(), ids=BROKEN)
async def test_what_is_no_reply_is_an_error(wire: Wire | Whole, error: type[ModelError]) -> None:
    """A stream without its end is an error, not a complete reply."""
    async with rig_of([wire]) as rig:
        with pytest.raises(error):
            await rig.ask()
