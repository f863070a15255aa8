"""A model call as plugins see it, and what they may make of it."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import JsonValue

from everloop.activities.model.plugins import FIXED_SETTINGS, as_chat_request, as_model_request
from everloop.activities.model.request import (
    ChatRequest,
    build_request,
    made_to_call,
    readable_arguments,
    sent_messages,
)
from everloop.agents.agent import Agent
from everloop.agents.hooks import ModelRequest
from everloop.agents.plugins import tools
from everloop.agents.tool import tool
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    ListedTool,
    SummaryMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    UserMessage,
)


@tool
def find(query: str) -> str:
    """Find."""
    return query


@tool
def write(text: str) -> str:
    """Write."""
    return text


AGENT = Agent(id="a", name="", description="", plugins=[tools(find, write)])
REQUEST = build_request("m", AGENT, [AssistantMessage(text="Hi")])
FORCED = made_to_call(REQUEST, "write")


def changed(request: ChatRequest, change: Callable[[ModelRequest], ModelRequest]) -> Mapping[str, object]:
    """Return the request that a plugin makes of one."""
    return {**as_chat_request(change(as_model_request(request)), request)}


def test_a_plugin_sees_the_whole_call() -> None:
    """Model, messages, names of tools, and everything else as settings."""
    seen = as_model_request(FORCED)
    assert (seen.model, seen.tools) == ("m", ("find", "write"))
    assert [message["role"] for message in seen.messages] == ["assistant", "user"]
    assert sorted(seen.settings) == ["parallel_tool_calls", "tool_choice"]


def test_tools_may_be_taken_away() -> None:
    """In their order; without any the request has no list, which could not be empty."""
    assert (
        changed(REQUEST, lambda seen: replace(seen, tools=("write",)))["tools"]
        == REQUEST.get("tools", [])[1:]
    )
    assert "tools" not in changed(REQUEST, lambda seen: replace(seen, tools=()))


def test_without_tools_there_is_nothing_to_choose() -> None:
    """Providers refuse settings of tools where there are none."""
    settings: Mapping[str, JsonValue] = {"tool_choice": "auto", "parallel_tool_calls": True, "top_p": 1}
    made = changed(REQUEST, lambda seen: replace(seen, tools=(), settings=settings))
    assert made.keys() == {"model", "messages", "top_p"}


@pytest.mark.parametrize("left", [("find",), ()])
def test_a_tool_that_is_gone_need_not_be_called(left: tuple[str, ...]) -> None:
    """Providers refuse a request that asks for one they were not told of."""
    made = changed(FORCED, lambda seen: replace(seen, tools=left))
    assert not {"tool_choice", "parallel_tool_calls"} & made.keys()


@pytest.mark.parametrize("setting", sorted(FIXED_SETTINGS))
def test_what_is_no_setting_is_refused(setting: str) -> None:
    """A stream of another kind could not be read."""
    with pytest.raises(ValueError, match=f"^{setting} cannot be set by `settings`"):
        changed(REQUEST, lambda seen: replace(seen, settings={setting: False}))


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=UTC), {1}, float("nan"), "\ud800"],
    ids=["time", "set", "nan", "surrogate"],
)
def test_what_is_not_json_is_refused(value: object) -> None:
    """Here, and not by the client of the provider, where the call would be tried again for ever."""
    wrong: Mapping[str, JsonValue] = {"role": "user", "content": value}  # pyright: ignore[reportAssignmentType] -- what a plugin may do

    def set_it(seen: ModelRequest) -> ModelRequest:
        return replace(seen, settings=wrong)

    def say_it(seen: ModelRequest) -> ModelRequest:
        return replace(seen, messages=(*seen.messages, wrong))

    for change in (set_it, say_it):
        with pytest.raises(ValueError, match="are no JSON"):
            changed(REQUEST, change)


BARE = Agent(id="bare", name="", description="")


def said(text: str) -> UserMessage:
    """Return a message of the client."""
    return UserMessage(message_id=text, parts=(TextPart(text=text),))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            UserMessage(message_id="m", parts=(TextPart(text="Look:"), DataPart(data={"é": [1, None]}))),
            {"role": "user", "content": 'Look:\n\n{"é": [1, null]}'},
        ),
        (AssistantMessage(text="Hi", reasoning="Hm"), {"role": "assistant", "content": "Hi"}),
        (
            AssistantMessage(text="", tool_calls=(ToolCall(id="a", name="f", arguments='{"x": 1}'),)),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
                ],
            },
        ),
        (
            ToolMessage(call_id="a", name="f", content="1", outcome="unknown"),
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ),
    ],
)
def test_messages_are_translated(message: TranscriptMessage, expected: dict[str, object]) -> None:
    """Each kind of message has its place in Chat Completions; reasoning is not sent back."""
    assert build_request("m", BARE, [message])["messages"] == [expected]


ASKED = said("Start")
CALL = AssistantMessage(tool_calls=(ToolCall(id="a", name="f", arguments="{}"),))
RESULT = ToolMessage(call_id="a", name="f", content="1")
TRANSCRIPT = (ASKED, CALL, RESULT, AssistantMessage(text="One"), said("Two"), CALL, RESULT)
"""Messages 0 to 6."""


def sums(end: int, text: str = "Sum") -> SummaryMessage:
    return SummaryMessage(end=end, text=text)


COVERED: dict[str, tuple[tuple[TranscriptMessage, ...], list[str | None]]] = {
    "begins with a reply": ((*TRANSCRIPT, sums(3)), ["Start", "[Sum]", "One", "Two", None, "1"]),
    "begins with a call": ((*TRANSCRIPT, sums(5)), ["Start", "[Sum]", None, "1"]),
    "all of it": ((*TRANSCRIPT, sums(7)), ["Start", "[Sum]"]),
    "left out": ((*TRANSCRIPT, sums(4, "")), ["Start", "[3]", "Two", None, "1"]),
    "goes on after it": (
        (*TRANSCRIPT, sums(3), said("Three")),
        ["Start", "[Sum]", "One", "Two", None, "1", "Three"],
    ),
    "a second one covers the first": (
        (*TRANSCRIPT[:5], sums(3, "Old"), *TRANSCRIPT[5:], sums(4)),
        ["Start", "[Sum]", "Two", None, "1"],
    ),
    "a second one counts what was said": (
        (*TRANSCRIPT[:4], sums(3, ""), *TRANSCRIPT[4:], sums(6, "")),
        ["Start", "[4]", None, "1"],
    ),
    "a result without its call, which no workflow asks for": (
        (*TRANSCRIPT, sums(6)),
        ["Start", "[Sum]"],
    ),
}


@pytest.mark.parametrize(("transcript", "expected"), COVERED.values(), ids=COVERED)
def test_a_summary_stands_for_what_it_covers(
    transcript: tuple[TranscriptMessage, ...], expected: list[str | None]
) -> None:
    """The first message stays, then comes the last summary, then what it does not cover, calls first."""
    messages = build_request("m", BARE, transcript)["messages"]
    assert [_brief(message) for message in messages] == expected


def _brief(message: ChatCompletionMessageParam) -> str | None:
    """Return the content; notes that replace messages in brackets, calls as None."""
    content = message.get("content")
    if content is None:
        return None
    text = str(content)
    left_out = re.fullmatch(r"\[(\d+) earlier messages were left out\]", text)
    if left_out:
        return f"[{left_out[1]}]"
    return re.sub(r"\[Summary of the conversation so far\]\n(.+)", r"[\1]", text)


@tool
def own(query: str) -> str:
    """Search."""
    return query


def listed(*names: str) -> ToolsMessage:
    """Return a list of tools, as a plugin gives it."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
    return ToolsMessage(
        tools=tuple(ListedTool(name=n, description=f"Listed {n}", parameters=schema) for n in names)
    )


def test_listed_tools_are_offered_beside_the_own_ones() -> None:
    """The last list counts; of two tools of one name the agent's own is meant."""
    agent = Agent(id="a", name="", description="", plugins=[tools(own)])
    request = build_request("m", agent, [ASKED, listed("old"), CALL, RESULT, listed("own", "other"), ASKED])
    functions = [each["function"] for each in request.get("tools", ())]
    assert [(function["name"], function.get("description")) for function in functions] == [
        ("own", "Search."),
        ("other", "Listed other"),
    ]
    assert functions[1].get("parameters") == {"type": "object", "properties": {}}


def test_an_empty_list_offers_nothing() -> None:
    """Neither its own tools nor those of an earlier list; providers refuse an empty array."""
    assert "tools" not in build_request("m", BARE, [listed("old"), ASKED, listed()])


def test_a_list_of_tools_is_no_message() -> None:
    """The model does not read it, and nobody counts it as one that was left out."""
    transcript = (ASKED, listed("f"), CALL, RESULT, said("Two"), listed("g"), SummaryMessage(end=4))
    messages = build_request("m", BARE, transcript)["messages"]
    assert [_brief(message) for message in messages] == ["Start", "[2]", "Two"]
    assert sent_messages(transcript) == [ASKED, said("Two")]


def test_a_refused_reply_of_which_nothing_is_left_is_not_sent() -> None:
    """Some providers take no empty message; what was wrong with it stands in the next one."""
    replies = [AssistantMessage(refused="No."), AssistantMessage(text="Words", refused="No.")]
    messages = build_request("m", BARE, [ASKED, *replies, said("No.")])["messages"]
    assert [_brief(message) for message in messages] == ["Start", "Words", "No."]


def test_what_an_agent_lacks_is_left_out() -> None:
    """An agent without tools sends no empty list, which providers refuse."""
    assert build_request("m", BARE, []) == {"model": "m", "messages": []}


@pytest.mark.parametrize("written", ["", " ", "{", "[1]", "null", "no JSON", "[" * 10_000, '{"a": 1}'])
def test_arguments_go_back_as_an_object(written: str) -> None:
    """Whatever the model wrote, a provider that parses the transcript can read it."""
    read = json.loads(readable_arguments(written))
    assert isinstance(read, dict)
    assert (written.strip() in read.values()) or read in ({}, {"a": 1})
