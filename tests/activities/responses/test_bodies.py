"""Requests to a provider of the Responses API with the refusals of OpenAI."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from everloop.models.catalogue import Catalogue, ModelEntry
from everloop.models.interface import ModelRequest, OutputSchema
from everloop.models.responses import responses_body
from everloop.workflows.contract.agent_settings import ModelSettings
from tests.support.fakes.responses import (
    ANSWERING,
    ASKING,
    QUESTION,
    REQUEST,
    SEARCH,
    WEB_SEARCH,
    ended,
    following,
    message_of,
    rig_of,
)
from tests.support.servers.scripted_openai import Whole
from tests.support.servers.zoo.provider import Object, Played
from tests.support.servers.zoo.responses import OpenAIResponses
from tests.support.servers.zoo.responses_rules import judge


@pytest.mark.parametrize("settings", [ModelSettings(), WEB_SEARCH], ids=["calls", "web search"])
async def test_what_came_back_goes_back(settings: ModelSettings) -> None:
    """Reasoning, items of the provider's tools and phases are sent back in their order."""
    provider = OpenAIResponses(ASKING, ANSWERING, ANSWERING)
    async with rig_of(provider) as rig:
        first = message_of(await rig.ask(replace(REQUEST, settings=settings)))
        request = following(first, settings)
        second = message_of(await rig.ask(request))
        messages = (*request.messages, second, {"role": "user", "content": "And?"})
        end = ended(await rig.ask(ModelRequest("openai/gpt-5.1", messages, (SEARCH,), settings)))
    assert end.reason == "stop"
    assert provider.regrets == []
    assert (rig.body["store"], rig.body["include"]) == (False, ["reasoning.encrypted_content"])
    kinds = [item.get("type", item.get("role")) for item in rig.server.requests[-1].conversation]
    own = ["reasoning", "web_search_call", "reasoning"] if settings.provider_tools else ["reasoning"]
    calls = ["function_call"] * 2 + ["function_call_output"] * 2
    assert kinds[-len(own) * 2 - 7 :] == [*own, "assistant", *calls, *own, "assistant", "user"]


def lose_call(number: int) -> Callable[[Object], object]:
    def lose(message: Object) -> None:
        calls = message["tool_calls"]
        assert isinstance(calls, list)
        calls.pop(number)

    return lose


CHANGES: dict[str, tuple[Played, Callable[[Object], object]]] = {
    "a call less": (ASKING, lose_call(0)),
    "another call less": (ASKING, lose_call(1)),
    "no text": (ASKING, lambda message: message.update(content=None)),
    "another text": (ASKING, lambda message: message.update(content="Well.")),
    "nothing left behind the thought": (Played(thought="Hm.", text="Hi"), lambda m: m.update(content=None)),
    "a text where there was none": (
        Played(thought="Hm.", calls=ASKING.calls),
        lambda message: message.update(content="Well."),
    ),
    "only the one call gone": (Played(thought="Hm.", calls=ASKING.calls[:1]), lose_call(0)),
}


@pytest.mark.parametrize(("played", "change"), CHANGES.values(), ids=CHANGES)
async def test_hooks_may_change_a_reply(played: Played, change: Callable[[Object], object]) -> None:
    """Items that a hook removes take along their reasoning, which is refused alone."""
    async with rig_of(OpenAIResponses(played, ANSWERING)) as rig:
        message = copy.deepcopy(message_of(await rig.ask()))
        change(message)
        assert ended(await rig.ask(following(message))).reason == "stop"
    texts = [
        item["content"] for item in rig.server.requests[-1].conversation if item.get("role") == "assistant"
    ]
    assert texts == ([message["content"]] if message["content"] else [])


async def test_reasoning_goes_with_the_call_that_it_led_to() -> None:
    """Reasoning is sent with its call, and left out without it, even if other calls follow."""
    async with rig_of(OpenAIResponses(Played(thought="Hm.", calls=ASKING.calls), ANSWERING)) as rig:
        message = message_of(await rig.ask())
        lose_call(0)(message)
        await rig.ask(following(message))
    kinds = [item.get("type") for item in rig.server.requests[-1].conversation]
    assert kinds == [None, "function_call", "function_call_output"]


def _message(text: str, phase: str) -> Object:
    item: Object = {"type": "message", "id": phase, "content": [{"type": "output_text", "text": text}]}
    return {**item, "phase": phase}


@pytest.mark.parametrize("text", ["I look.\n\nIt is.", "I looked."])
async def test_messages_of_one_reply_keep_their_phases(text: str) -> None:
    """Messages of one reply are one text here, and are sent separately unless a plugin changed it."""
    output = [_message("I look.", "commentary"), _message("It is.", "final_answer")]
    whole = Whole({"id": "r", "model": "m", "status": "completed", "output": [*output]})
    async with rig_of([whole, whole]) as rig:
        message = message_of(await rig.ask())
        assert message["content"] == "I look.\n\nIt is."
        message["content"] = text
        await rig.ask(following(message))
    back: list[Object] = [
        {"role": "assistant", "content": "I look.", "phase": "commentary"},
        {"role": "assistant", "content": "It is.", "phase": "final_answer"},
    ]
    other: list[Object] = [{"role": "assistant", "content": text, "phase": "commentary"}]
    assert rig.server.requests[-1].conversation[1:] == (other if text == "I looked." else back)


async def test_a_reply_of_another_model_goes_as_it_is() -> None:
    """A transcript of another model is accepted, with images, files and late system prompts."""
    image: Object = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    file: Object = {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    }
    audio: Object = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    call: Object = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    messages: list[Object] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, image, file, audio]},
        {"role": "assistant", "content": "I do.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "system", "content": "Mind the time."},
    ]
    async with rig_of(OpenAIResponses(ANSWERING), late_system="developer") as rig:
        await rig.ask(ModelRequest("openai/gpt-5.1", tuple(messages), (SEARCH,)))
    assert rig.body["input"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
                {"type": "input_text", "text": "[This model does not take input_audio parts.]"},
            ],
        },
        {"role": "assistant", "content": "I do."},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"role": "developer", "content": "Mind the time."},
    ]


FUNCTION: Object = {**SEARCH.model_dump(), "type": "function", "strict": False}
SCHEMA: Object = {"type": "object", "properties": {}}
EVERYTHING = ModelSettings(
    temperature=0.2,
    top_p=0.5,
    max_tokens=700,
    stop=["END"],
    seed=7,
    effort="none",
    verbosity="low",
    tool_choice="search",
    parallel_tool_calls=False,
    service_tier="flex",
    provider_tools=[{"type": "web_search"}],
    extra_body={
        "reasoning": {"summary": "auto"},
        "include": ["web_search_call.action.sources"],
        "user": "u",
    },
)
ANSWER_IN_JSON: Object = {"role": "user", "content": "Answer in JSON."}
BODIES: dict[str, tuple[ModelRequest, Object]] = {
    "nothing is set": (REQUEST, {"tools": [FUNCTION]}),
    "everything is set": (
        replace(REQUEST, settings=EVERYTHING, output=OutputSchema("answer", SCHEMA)),
        {
            "temperature": 0.2,
            "top_p": 0.5,
            "max_output_tokens": 700,
            "reasoning": {"effort": "none", "summary": "auto"},
            "text": {
                "verbosity": "low",
                "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": False},
            },
            "tool_choice": {"type": "function", "name": "search"},
            "parallel_tool_calls": False,
            "service_tier": "flex",
            "tools": [FUNCTION, {"type": "web_search"}],
            "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
            "user": "u",
        },
    ),
    "json_object": (
        ModelRequest(REQUEST.model, (ANSWER_IN_JSON,), output=OutputSchema("answer", SCHEMA, "json_object")),
        {"text": {"format": {"type": "json_object"}}, "input": [ANSWER_IN_JSON]},
    ),
    "no tools": (
        ModelRequest(
            REQUEST.model,
            (QUESTION,),
            settings=ModelSettings(tool_choice="required", parallel_tool_calls=True),
            output=OutputSchema("answer", SCHEMA, "prompt"),
        ),
        {},
    ),
}


@pytest.mark.parametrize(("request_", "fields"), BODIES.values(), ids=BODIES)
async def test_settings_have_the_names_of_the_api(request_: ModelRequest, fields: Object) -> None:
    """Each setting is sent under the API's name; settings without a value are not sent."""
    async with rig_of(OpenAIResponses(ANSWERING)) as rig:
        await rig.ask(request_)
    fixed: Object = {"model": "gpt-5.1", "stream": True, "store": False, "input": [QUESTION]}
    assert rig.body == {"include": ["reasoning.encrypted_content"], **fixed, **fields}


async def test_what_a_provider_refuses_is_left_out() -> None:
    """`omit` of an entry, an unknown effort and headers of the agent shape the request."""
    models = {"gpt-4o": ModelEntry(omit=frozenset({"include", "service_tier"}))}
    settings = ModelSettings(effort="low", service_tier="flex", extra_headers={"x-team": "search"})
    async with rig_of(OpenAIResponses(Played(text="Hi")), models=models, effort="") as rig:
        await rig.ask(ModelRequest("openai/gpt-4o", (QUESTION,), settings=settings), "gpt-4o")
    assert rig.body.keys() == {"model", "stream", "store", "input"}
    assert rig.server.requests[0].headers["x-team"] == "search"


@pytest.mark.parametrize(
    "model",
    ["gpt-5.4-mini", "o3", "gpt-5-chat-latest", "gpt-4.1-mini", "gpt-4o", "gpt-4-turbo", "gpt-3.5-turbo-16k"],
)
def test_models_are_asked_as_their_entries_say(model: str) -> None:
    """The shipped entries state which OpenAI models take no request for reasoning."""
    provider = Catalogue.load(None, None, {"OPENAI_API_KEY": "k"}).providers["openai"]
    assert provider.kind == "responses"
    judge(responses_body(REQUEST, model, provider), [])
