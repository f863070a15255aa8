"""The zoo accepts and refuses the same requests as real providers, and sends recorded replies."""

import copy
import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from tests.support.servers.scripted_openai import ReceivedRequest, Wire
from tests.support.servers.zoo.all import ANSWERING, ASKING, PROVIDERS, VARIANTS
from tests.support.servers.zoo.anthropic import Anthropic
from tests.support.servers.zoo.deepseek import DeepSeek
from tests.support.servers.zoo.engines import VLLM, LlamaCpp
from tests.support.servers.zoo.gemini import Gemini
from tests.support.servers.zoo.groq import Groq
from tests.support.servers.zoo.local import LMStudio, Ollama
from tests.support.servers.zoo.mistral import Mistral
from tests.support.servers.zoo.openai_chat import Azure, OpenAI
from tests.support.servers.zoo.openrouter import OpenRouter
from tests.support.servers.zoo.provider import Object, Provider, calls_of, messages_of
from tests.support.servers.zoo.responses import OpenAIResponses

Change = Callable[[Object], object]


def ask(provider: Provider, body: Object) -> Wire:
    """Send a request without HTTP."""
    answer = provider(ReceivedRequest(body, {"api-key": "of a test"}))
    assert isinstance(answer, Wire)
    return answer


def second_request(provider: Provider) -> Object:
    """Play the first reply; return the next request of a client that meets all of the provider's rules."""
    question: Object = {"role": "user", "content": "Hi"}
    body: Object = {"model": provider.model, "messages": [question], "stream": True}
    body |= {"tools": [{"type": "function", "function": {"name": "search"}}], "parallel_tool_calls": True}
    assert ask(provider, body).status == 200
    given = provider.given[0]
    results: list[Object] = [{"role": "tool", "tool_call_id": id_, "content": "found"} for id_ in given.ids]
    messages: list[JsonValue] = [question, given.message(), *results]
    # The one setting that some model needs to accept tools.
    effort: Object = {"reasoning_effort": "none"} if "gpt-5" in provider.model else {}
    return {**body, "messages": messages, **effort}


def put(**fields: JsonValue) -> Change:
    """Return a function that sets fields of the request."""
    return lambda body: body.update(fields)


def edit(place: int, **fields: JsonValue) -> Change:
    """Return a function that sets fields of a message."""
    return lambda body: messages_of(body)[place].update(fields)


def edit_call(**fields: JsonValue) -> Change:
    """Return a function that sets fields of the first call."""
    return lambda body: calls_of(messages_of(body)[1])[0].update(fields)


def lose(name: str) -> Change:
    """Return a function that removes a field from the assistant message."""
    return lambda body: messages_of(body)[1].pop(name)


def keep(*places: int) -> Change:
    """Return a function that keeps only these messages."""
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
    """A request with a single mistake is refused, as by the real provider."""
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
"""The keys in a stream of each provider, in recorded order."""


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
    """A valid request passes without a warning."""
    provider = kind(ASKING, ANSWERING)
    assert ask(provider, second_request(provider)).status == 200
    assert provider.regrets == []


@pytest.mark.parametrize("kind", [*PROVIDERS, *VARIANTS, OpenAIResponses])
def test_quirks_name_their_source(kind: type[Provider | OpenAIResponses]) -> None:
    """Each quirk of the zoo has a source."""
    assert kind.quirks
    assert all(known.source for known in (*kind.quirks, *kind.faults.values()))
