"""Model calls against the providers of the zoo: what each does differently, and what each refuses."""

import copy
import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from pydantic import JsonValue

from everloop.activities.model.reply import MAX_OPAQUE
from everloop.models.catalogue import Catalogue, ModelEntry
from everloop.models.catalogue import Provider as Entry
from everloop.workflows.contract.failures import CONTEXT_TOO_LONG, MODEL_REFUSED, MODEL_UNAVAILABLE
from everloop.workflows.contract.messages import AssistantMessage, ToolCall
from tests.support.rigs.model_rig import QUESTION, ModelRig, model_rig
from tests.support.servers.scripted_openai import Raw, ReceivedRequest, Reply, Wire
from tests.support.servers.zoo.anthropic import Anthropic, Copilot
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.engines import VLLM, LlamaCpp, OldLlamaCpp, QwenWithoutParser
from tests.support.servers.zoo.gateways import FunctionCalls, LiteLLM, OllamaBehindLiteLLM
from tests.support.servers.zoo.gemini import Gemini, Gemini2, Vertex
from tests.support.servers.zoo.groq import Groq
from tests.support.servers.zoo.local import LMStudio, OldOllama, Ollama
from tests.support.servers.zoo.mistral import HostedGlm, Mistral
from tests.support.servers.zoo.openai_chat import Azure, OpenAI
from tests.support.servers.zoo.openrouter import OpenRouter, OpenRouterToOpenAI
from tests.support.servers.zoo.provider import Framing, Means, Object, Played, Provider, calls_of, messages_of
from tests.support.servers.zoo.responses import OpenAIResponses

PROVIDERS: list[type[Provider]] = [
    OpenAI,
    Azure,
    DeepSeek,
    Gemini,
    Anthropic,
    Mistral,
    Groq,
    OpenRouter,
    VLLM,
    LlamaCpp,
    Ollama,
    LMStudio,
]
VARIANTS: list[type[Provider]] = [
    Gemini2,
    Vertex,
    Copilot,
    HostedGlm,
    OpenRouterToOpenAI,
    OldLlamaCpp,
    OldOllama,
    LiteLLM,
    OllamaBehindLiteLLM,
    QwenWithoutParser,
]
"""Of a provider: other models, or older versions."""

SPEAKING: list[type[Provider]] = [*PROVIDERS, OpenAIResponses]
"""All of them, whichever API they have."""

SHIPPED = Catalogue.load(None, None, {}).providers
KNOWN = {each.name for each in fields(Entry)} - {"name", "base_url", "key"}


def terms(kind: type[Provider]) -> dict[str, Any]:
    """Return what ships of a provider; of a template that begins a thought, what its users have to say."""
    if kind is QwenWithoutParser:
        return {"models": {"": ModelEntry(starts_thinking=True)}}
    # OpenAI speaks both.
    entry = SHIPPED.get(kind.name)
    known: dict[str, Any] = {each: getattr(entry, each) for each in KNOWN} if entry else {}
    return {**known, "kind": "responses" if kind is OpenAIResponses else "chat"}


ASKING = Played(
    thought="Two look-ups: Köln 🜁 and Ålesund.",
    text="I look it up.",
    calls=(("search", '{"query": "Köln 🜁"}'), ("search", '{"query": "Ålesund"}')),
)
ANSWERING = Played(thought="That is enough.", text="Both are cities — 🜁.")


async def loop(provider: Provider, rig: ModelRig) -> tuple[AssistantMessage, AssistantMessage]:
    """Run two iterations: two parallel calls, and their results."""
    rig.port = rig.port_to(f"openai/{provider.model}")
    asking = await rig.run()
    results = tuple(call.result(f"{call.name} found it") for call in asking.tool_calls)
    length = rig.call.length + 1 + len(results)
    await rig.store(*results, start=2)
    answering = await rig.run(rig.changed(iteration=2, length=length, new=()))
    return asking, answering


@pytest.mark.parametrize("kind", [*SPEAKING, *VARIANTS])
async def test_the_loop_passes(kind: type[Provider]) -> None:
    """Calls and answer come through, thought stays out of both, and what has to go back goes back."""
    provider = kind(ASKING, ANSWERING)
    async with model_rig(provider, **terms(type(provider))) as rig:
        asking, answering = await loop(provider, rig)
        shown = await rig.answer()
    assert [(call.name, json.loads(call.arguments)) for call in asking.tool_calls] == [
        ("search", {"query": "Köln 🜁"}),
        ("search", {"query": "Ålesund"}),
    ]
    assert (asking.text.strip(), answering.text.strip()) == (ASKING.text, ANSWERING.text)
    assert shown == (answering.text, True)
    assert answering.reasoning.strip() in {"", ANSWERING.thought}
    assert provider.regrets == []


EARLIER = AssistantMessage(
    tool_calls=tuple(
        ToolCall(id=f"r00001c0{n}", name="search", arguments="{}", opaque='{"of": "another model"}')
        for n in (1, 2)
    ),
    source="other/model",
    opaque='{"secret": "of another model"}',
)


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
async def test_the_history_of_another_model_is_taken(kind: type[Provider]) -> None:
    """Who answers may change in mid-task: what the one before wanted back is not sent to the next."""
    provider = kind(ANSWERING)
    async with model_rig(provider, **terms(kind)) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        results = [call.result("found") for call in EARLIER.tool_calls]
        await rig.store(QUESTION, EARLIER, *results)
        reply = await rig.run(rig.changed(iteration=2, length=4, new=()))
        assert "another model" not in json.dumps(rig.provider.requests[0].body)
    assert reply.text.strip() == ANSWERING.text


async def test_what_goes_back_is_shown_to_nobody() -> None:
    """Neither events nor the view hold it; what is too much of it is told, and not kept."""
    wanted = Raw('{"choices": [{"delta": {"signature": "for the provider", "thought_signature": "%s"}}]}')
    for size, kept in ((10, True), (MAX_OPAQUE, False)):
        script = [Reply(["Hi", replace(wanted, data=wanted.data % ("x" * size))])]
        async with model_rig(script) as rig:
            reply = await rig.run()
            shown = repr((await rig.events(), await rig.view()))
            assert ("for the provider" in reply.opaque) == kept
            assert "for the provider" not in shown
            assert ("wants more back" in shown) != kept


FRAMINGS = {
    "CRLF, as SSE allows it (WHATWG HTML §9.2.5)": Framing(newline="\r\n"),
    "no space behind the colon, freellmapi PR 1092 (Ant's API), openai-python#498 (Spring)": Framing(
        label="data:"
    ),
    "single bytes, which cut characters": Framing(piece=1),
    "pieces that fit nothing": Framing(piece=7),
    ": OPENROUTER PROCESSING": Framing(comment=": OPENROUTER PROCESSING"),
    "a colon alone, llama.cpp": Framing(comment=":"),
    "spaces in JSON, vLLM": Framing(is_compact=False),
    "no [DONE], ik_llama.cpp#467": Framing(done=""),
    "no blank line behind [DONE], apogee PR 139 (llama.cpp b10603)": Framing(done="data: [DONE]\n"),
}


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
@pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses])
async def test_bytes_may_be_laid_out_otherwise(kind: type[Provider], framing: Framing) -> None:
    """Lines, labels, comments, and how the bytes are cut make no difference."""
    provider = kind(ASKING, ANSWERING, framing=framing)
    async with model_rig(provider, **terms(type(provider))) as rig:
        asking, answering = await loop(provider, rig)
    assert [call.arguments for call in asking.tool_calls] == [arguments for _, arguments in ASKING.calls]
    assert answering.text == ANSWERING.text


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_reply_that_was_too_long_is_continued(kind: type[Provider]) -> None:
    """The reason of the end comes through, and the provider takes the first half for the second."""
    provider = kind(Played(text="And then", reason="length"), Played(text=" it ended."))
    async with model_rig(provider, **terms(type(provider))) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        reply = await rig.run()
        assert await rig.answer() == ("And then it ended.", True)
    assert (reply.text, reply.finish_reason) == ("And then it ended.", "stop")
    assert provider.regrets == []


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_refusal_is_read(kind: type[Provider]) -> None:
    """What the model declines with comes through, as its answer or as the reason why there is none."""
    provider = kind(Played(refusal="I cannot help with that."))
    async with model_rig(provider, **terms(type(provider))) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        reply = await rig.run()
    assert "I cannot help with that." in {reply.text, reply.closing.removeprefix("the model declined: ")}


@pytest.mark.parametrize("kind", SPEAKING)
async def test_a_cut_is_noticed(kind: type[Provider]) -> None:
    """A lost connection is no end of a reply: the call is tried again."""
    provider = kind(Played(text="And then", cut=True))
    async with model_rig(provider, **terms(type(provider))) as rig:
        rig.port = rig.port_to(f"openai/{provider.model}")
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == (MODEL_UNAVAILABLE, False)


ODD_CALLS: dict[str, tuple[type[Provider], tuple[str, str]]] = {
    "a function, as before there were tools": (FunctionCalls, ASKING.calls[0]),
    "half a call that ends as a whole one": (QwenWithoutParser, ("search", '{"query": "Kö')),
}


@pytest.mark.parametrize(("kind", "call"), ODD_CALLS.values(), ids=ODD_CALLS)
async def test_odd_calls_are_read_and_taken_back(kind: type[Provider], call: tuple[str, str]) -> None:
    """A call is what came, whole or not: its result says what was wrong, and the provider takes both."""
    provider = kind(Played(calls=(call,)), ANSWERING)
    async with model_rig(provider, **terms(type(provider))) as rig:
        asking, answering = await loop(provider, rig)
    assert [(one.name, one.arguments) for one in asking.tool_calls] == [call]
    assert answering.text.strip() == ANSWERING.text


MEANT: dict[Means, tuple[str, bool]] = {
    "busy": (MODEL_UNAVAILABLE, False),
    "down": (MODEL_UNAVAILABLE, False),
    "unreadable": (MODEL_UNAVAILABLE, False),
    "refused": (MODEL_REFUSED, True),
    "filtered": (MODEL_REFUSED, True),
    "too long": (CONTEXT_TOO_LONG, True),
}
"""The failure that each comes to, and whether the call ends with it."""

FAULTS = [
    pytest.param(kind, name, id=f"{kind.__name__}: {name}") for kind in SPEAKING for name in kind.faults
]


@pytest.mark.parametrize(("kind", "name"), FAULTS)
async def test_failures_are_taken_for_what_they_are(kind: type[Provider], name: str) -> None:
    """A failure is retried if waiting helps, and ends the call under its own name if not."""
    fault = kind.faults[name]
    async with model_rig(lambda _: fault.wire, **terms(kind)) as rig:
        rig.port = rig.port_to(f"openai/{kind.model}")
        failure = await rig.fail()
    assert (failure.type, failure.non_retryable) == MEANT[fault.means]


# The zoo itself.

Change = Callable[[Object], object]


def ask(provider: Provider, body: Object) -> Wire:
    """Send a request without HTTP."""
    answer = provider(ReceivedRequest(body, {"api-key": "of a test"}))
    assert isinstance(answer, Wire)
    return answer


def second_request(provider: Provider) -> Object:
    """Let the first reply be played; return what a client sends that does all as the provider wants it."""
    question: Object = {"role": "user", "content": "Hi"}
    body: Object = {"model": provider.model, "messages": [question], "stream": True}
    body |= {"tools": [{"type": "function", "function": {"name": "search"}}], "parallel_tool_calls": True}
    assert ask(provider, body).status == 200
    given = provider.given[0]
    results: list[Object] = [{"role": "tool", "tool_call_id": id_, "content": "found"} for id_ in given.ids]
    messages: list[JsonValue] = [question, given.message(), *results]
    # The one setting without which some model refuses tools.
    effort: Object = {"reasoning_effort": "none"} if "gpt-5" in provider.model else {}
    return {**body, "messages": messages, **effort}


def put(**fields: JsonValue) -> Change:
    """Return what sets fields of the request."""
    return lambda body: body.update(fields)


def edit(place: int, **fields: JsonValue) -> Change:
    """Return what sets fields of a message."""
    return lambda body: messages_of(body)[place].update(fields)


def edit_call(**fields: JsonValue) -> Change:
    """Return what sets fields of the first call."""
    return lambda body: calls_of(messages_of(body)[1])[0].update(fields)


def lose(name: str) -> Change:
    """Return what takes a field from the assistant message."""
    return lambda body: messages_of(body)[1].pop(name)


def keep(*places: int) -> Change:
    """Return what keeps only these messages."""
    return lambda body: body.update(messages=[messages_of(body)[place] for place in places])


ADDED: Object = {"role": "user", "content": "And?"}
REFUSALS: list[tuple[type[Provider], Change, int, str]] = [
    (OpenAI, put(foo=1), 400, "Unrecognized request argument"),
    (OpenAI, keep(0, 1, 2), 400, "did not have response messages: call_0001"),
    (OpenAI, keep(0, 2), 400, "must be a response to a preceeding message"),
    (OpenAI, put(tools=None), 400, "only allowed when 'tools' are specified"),
    (OpenAI, put(model="gpt-5-mini", max_tokens=7), 400, "Use 'max_completion_tokens' instead"),
    (OpenAI, put(model="gpt-5-mini", temperature=0.2), 400, "Only the default (1) value is supported"),
    (OpenAI, put(model="gpt-5.6-terra"), 400, "set reasoning_effort to 'none'"),
    (Azure, keep(0, 1), 400, "did not have response messages"),
    (DeepSeek, lose("reasoning_content"), 400, "must be passed back to the API"),
    (DeepSeek, put(tool_choice="required"), 400, "Thinking mode does not support"),
    (
        DeepSeek,
        put(tool_choice={"type": "function", "function": {"name": "search"}}),
        400,
        "Thinking mode does not support this tool_choice",
    ),
    (DeepSeek, put(response_format={"type": "json_schema"}), 400, "response_format type is unavailable"),
    (DeepSeek, put(response_format={"type": "json_object"}), 400, "must contain the word 'json'"),
    (DeepSeek, keep(0, 1, 2), 400, "insufficient tool messages"),
    (Gemini, edit_call(extra_content=None), 400, "missing a thought_signature"),
    (
        Gemini,
        edit_call(extra_content={"google": {"thought_signature": "another"}}),
        400,
        "Corrupted thought signature",
    ),
    (Gemini, put(store=False), 400, "Cannot find field"),
    (Anthropic, keep(0, 1, 2), 400, "`tool_use` ids were found without `tool_result` blocks"),
    (Anthropic, keep(0, 2), 400, "Unexpected role"),
    (Mistral, put(max_completion_tokens=7), 422, "extra_forbidden"),
    (Mistral, put(stream_options={"include_usage": True}), 422, '"stream_options"'),
    (Mistral, edit_call(id="call_0000Zq7Lk"), 400, "with a length of 9"),
    (Mistral, lambda body: body.update(messages=[*messages_of(body), ADDED]), 400, "Unexpected role 'user'"),
    (Mistral, keep(0, 2), 400, "Unexpected role 'tool' after role 'user'"),
    (Mistral, keep(0, 1), 400, "Expected last role User or Tool"),
    (Mistral, keep(0, 1, 2), 400, "Not the same number of function calls"),
    (Mistral, edit(1, content="", tool_calls=None), 400, "either content or tool_calls, but not none"),
    (Groq, edit(1, reasoning="as it was sent"), 400, "property 'reasoning' is unsupported"),
    (Groq, put(store=False), 400, "property 'store' is unsupported"),
    (Groq, put(response_format={"type": "json_object"}), 400, "cannot be combined with tool"),
    (OpenRouter, put(model="claude"), 400, "is not a valid model ID"),
    (VLLM, put(model="another"), 404, "does not exist"),
    (
        LlamaCpp,
        edit_call(function={"name": "search", "arguments": '{"que'}),
        500,
        "Failed to parse tool call",
    ),
    (LlamaCpp, edit(1, content=None, tool_calls=None), 400, "either 'content' or 'tool_calls'"),
    (
        Ollama,
        edit_call(function={"name": "search", "arguments": '{"que'}),
        400,
        "invalid tool call arguments",
    ),
    (Ollama, edit(1, content=None, tool_calls=None), 400, "invalid message content type"),
    (Ollama, put(reasoning_effort="minimal"), 400, "invalid reasoning value"),
    (LMStudio, put(tool_choice={"type": "function"}), 400, "Invalid tool_choice type: 'object'"),
    (LMStudio, put(response_format={"type": "json_object"}), 400, "must be 'json_schema' or 'text'"),
    (LMStudio, edit_call(id=""), 400, "Invalid 'messages' in payload"),
]


@pytest.mark.parametrize(("kind", "change", "status", "words"), REFUSALS)
def test_the_zoo_refuses(kind: type[Provider], change: Change, status: int, words: str) -> None:
    """A request with one thing wrong in it is refused, as by the real provider."""
    provider = kind(ASKING, ANSWERING)
    body = copy.deepcopy(second_request(provider))
    change(body)
    answer = ask(provider, body)
    assert answer.status == status
    assert words in json.dumps(json.loads(answer.pieces[0]), ensure_ascii=False)


RECORDED: list[tuple[type[Provider], str]] = [
    (
        OpenAI,
        '"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}]',
    ),
    (
        OpenAI,
        '{"index":0,"id":"call_0000Zq7Lk","type":"function","function":{"name":"search","arguments":""}}',
    ),
    (OpenAI, '"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,'),
    (Azure, 'data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{'),
    (Azure, '"violence":{"filtered":false,"severity":"safe"}},"finish_reason":null,"index":0}],"created":0,'),
    (DeepSeek, '"delta":{"role":"assistant","content":null,"reasoning_content":""},"logprobs":null,'),
    (
        DeepSeek,
        '"delta":{"content":"","reasoning_content":null},"logprobs":null,"finish_reason":"tool_calls"}',
    ),
    (Gemini, '"tool_calls":[{"extra_content":{"google":{"thought_signature":"EjQKMgEMOdbH0"}},"function":{'),
    (Gemini, '"delta":{"role":"assistant"},"finish_reason":"stop","index":0}'),
    (Anthropic, '"delta":{"tool_calls":[{"index":1,"function":{"arguments":""}}]},"finish_reason":null}]}'),
    (Mistral, '{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Two l"}],"closed":true}]}'),
    (Mistral, '"tool_calls":[{"id":"gSIMJi000","function":{"name":"search","arguments":"{'),
    (Groq, '"x_groq":{"id":"req_01kh","usage":{"queue_time":0.04,"prompt_tokens":7,'),
    (OpenRouter, ": OPENROUTER PROCESSING\n\n"),
    (OpenRouter, '"finish_reason":null,"native_finish_reason":null,"logprobs":null}],"usage":{'),
    (VLLM, '"delta":{"reasoning":"Two l"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'),
    (
        LlamaCpp,
        ':\n\ndata: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}',
    ),
    (Ollama, '"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Two l"},'),
    (LMStudio, '"delta":{"role":"assistant","content":"<thin"},"logprobs":null,"finish_reason":null}]}'),
]
"""What a stream of each provider holds, in the order of keys in which it was seen."""


@pytest.mark.parametrize(("kind", "words"), RECORDED)
def test_the_zoo_plays_what_was_recorded(kind: type[Provider], words: str) -> None:
    """The bytes are those of the real provider."""
    body: Object = {"model": kind.model, "messages": [], "stream": True, "parallel_tool_calls": True}
    usage: Object = {} if kind is Mistral else {"stream_options": {"include_usage": True}}
    tools: Object = {"tools": [{"type": "function", "function": {"name": "search"}}]}
    answer = ask(kind(ASKING), {**body, **usage, **tools, "messages": [{"role": "user", "content": "Hi"}]})
    assert words in b"".join(answer.pieces).decode()


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
def test_the_zoo_takes_what_is_right(kind: type[Provider]) -> None:
    """A request with nothing wrong in it passes, and leaves nothing to be desired."""
    provider = kind(ASKING, ANSWERING)
    assert ask(provider, second_request(provider)).status == 200
    assert provider.regrets == []


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS])
def test_quirks_name_their_source(kind: type[Provider]) -> None:
    """Nothing is in the zoo for which nobody stands."""
    assert kind.quirks
    assert all(known.source for known in (*kind.quirks, *kind.faults.values()))
