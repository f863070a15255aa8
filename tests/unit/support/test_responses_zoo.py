"""The Responses API of the zoo sends events of the API, and refuses its invalid requests."""

import json

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.servers.scripted_openai import ReceivedRequest, Wire
from tests.support.servers.zoo.provider import Object, Played
from tests.support.servers.zoo.responses import OpenAIResponses

QUESTION: Object = {"role": "user", "content": "Hi"}


def ask(provider: OpenAIResponses, body: Object) -> Wire:
    """Send a request without HTTP."""
    answer = provider(ReceivedRequest(body, {}))
    assert isinstance(answer, Wire)
    return answer


_HALF: Object = {"type": "function_call", "call_id": "c", "name": "search"}
_CALLING: Object = {**_HALF, "arguments": "{}"}
_RESULT: Object = {"type": "function_call_output", "call_id": "c", "output": "found"}
_IMAGE: Object = {"type": "text", "text": "Look"}
BODY: Object = {"model": "gpt-5.1", "input": [QUESTION], "stream": True, "store": False}


CALLS = (("search", '{"query": "Köln 🜁"}'), ("search", '{"query": "Ålesund"}'))
PLAYED = {
    "two calls": Played(thought="Two look-ups.\n\nKöln 🜁 first.", text="I look it up.", calls=CALLS),
    "length": Played(thought="Hm.", reason="length"),
    "filtered": Played(text="And", reason="content_filter"),
    "refusal": Played(refusal="I cannot help with that."),
}


@pytest.mark.parametrize("played", PLAYED.values(), ids=PLAYED)
def test_the_zoo_plays_what_the_package_knows(played: Played) -> None:
    """Each event is one of the API's own, with all required fields."""
    adapter: TypeAdapter[object] = TypeAdapter(ResponseStreamEvent)
    answer = ask(OpenAIResponses(played), {**BODY, "tools": [{"type": "web_search"}]})
    events = [
        json.loads(frame.partition("data: ")[2])
        for frame in b"".join(answer.pieces).decode().split("\n\n")
        if frame
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        if event["type"] != "keepalive":
            adapter.validate_python(event)


REFUSALS: list[tuple[Object, int, str]] = [
    ({"foo": 1}, 400, "Unknown parameter: 'foo'"),
    ({"max_tokens": 100}, 400, "Unknown parameter: 'max_tokens'"),
    ({"response_format": {}}, 400, "moved to 'text.format'"),
    ({"temperature": 0.2}, 400, "'temperature' is not supported with this model"),
    (
        {"model": "gpt-4o", "include": ["reasoning.encrypted_content"]},
        400,
        "Encrypted content is not supported",
    ),
    ({"model": "gpt-6-luna", "reasoning": {"effort": "minimal"}}, 400, "Unsupported value: 'minimal'"),
    ({"max_output_tokens": 8}, 400, "Expected a value >= 16"),
    ({"text": {"format": {"type": "json_schema"}}}, 400, "'text.format.name'"),
    ({"text": {"format": {"type": "json_object"}}}, 400, "must contain the word 'json'"),
    ({"tools": [{"type": "function", "function": {"name": "search"}}]}, 400, "'tools[0].name'"),
    ({"tools": [{"type": "function", "name": "search", "parameters": {}}]}, 400, "'additionalProperties'"),
    ({"tool_choice": "required"}, 400, "must be specified with 'tools'"),
    ({"tool_choice": {"type": "function", "name": "search"}}, 400, "not found in 'tools'"),
    ({"input": [{"role": "user", "content": [_IMAGE]}]}, 400, "Invalid value: 'text'"),
    ({"input": [QUESTION, _HALF]}, 400, "'input[1].arguments'"),
    ({"input": [QUESTION, _CALLING]}, 400, "No tool output found for function call c"),
    ({"input": [QUESTION, _RESULT]}, 400, "No tool call found for function call output with call_id c"),
    (
        {"input": [QUESTION, {"type": "reasoning", "id": "rs", "summary": []}]},
        404,
        "not persisted when `store`",
    ),
    (
        {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "made up"}]},
        400,
        "could not be verified",
    ),
    ({"input": [{"type": "reasoning", "summary": [], "status": "completed"}]}, 400, "'input[0].status'"),
]


@pytest.mark.parametrize(("fields", "status", "words"), REFUSALS, ids=[words for _, _, words in REFUSALS])
def test_the_zoo_refuses(fields: Object, status: int, words: str) -> None:
    """A request with a single mistake is refused, as by the real provider."""
    answer = ask(OpenAIResponses(Played(text="Hi")), {**BODY, **fields})
    assert answer.status == status
    assert words in json.loads(answer.pieces[0])["error"]["message"]


def test_the_zoo_wants_reasoning_back_with_what_followed() -> None:
    """Reasoning goes back with the item after it, and an item with an id not without its reasoning."""
    provider = OpenAIResponses(Played(thought="Hm.", text="Hi"), Played(text="Hi"))
    ask(provider, BODY)
    output = provider.given[0].opaque["output"]
    assert isinstance(output, list)
    thought, message = output
    assert isinstance(thought, dict)
    thought = {name: value for name, value in thought.items() if name != "status"}
    for items, words in (([thought], "required following item"), ([message], "required 'reasoning' item")):
        answer = ask(provider, {**BODY, "input": [*items, QUESTION]})
        assert words in json.loads(answer.pieces[0])["error"]["message"]
    assert ask(provider, {**BODY, "input": [QUESTION, thought, message, QUESTION]}).status == 200
    assert provider.regrets == []
