"""A model call: its inputs, and the request body for the provider."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from everloop.activities.model.model_files import AcceptedTypes, ReadFiles
from everloop.activities.model.request import (
    build_request,
    cache_key,
    made_to_call,
    only_create_task,
    readable_arguments,
    sent_messages,
    until_called,
    with_cache_hints,
)
from everloop.agents.agent import Agent
from everloop.agents.limits import ModelSettings
from everloop.agents.plugins import tools
from everloop.agents.tool import tool
from everloop.models.catalogue import ChosenModel, Provider
from everloop.models.chat import chat_body
from everloop.models.interface import ModelRequest
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    ListedTool,
    SummaryMessage,
    TaskReference,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolsMessage,
    TranscriptMessage,
    UserMessage,
)
from everloop.workflows.contract.tasks import TaskRef


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


def sent(request: ModelRequest) -> dict[str, Any]:
    """Return the body of a request."""
    return chat_body(request, request.model, Provider("test", max_tokens_field="max_completion_tokens"))


def body(request: ModelRequest, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 -- whatever a table names
    """Return the body of a request with these settings."""
    return sent(replace(request, settings=replace(request.settings, **settings)))


def test_a_body_has_what_is_set() -> None:
    """Under the names of Chat Completions; extra fields win, except over those of the request itself."""
    extra: dict[str, JsonValue] = {"top_k": 5, "seed": 2, "model": "other", "messages": []}
    made = body(REQUEST, max_tokens=9, effort="high", seed=1, stop=["#"], temperature=0, extra_body=extra)
    assert made.pop("tools") == body(REQUEST)["tools"]
    assert made.pop("stream_options") == {"include_usage": True}
    assert made == {
        "model": "m",
        "stream": True,
        "messages": [{"role": "assistant", "content": "Hi"}],
        "max_completion_tokens": 9,
        "reasoning_effort": "high",
        "seed": 2,
        "stop": ["#"],
        "temperature": 0,
        "top_k": 5,
    }


NAMED = {"type": "function", "function": {"name": "write"}}


@pytest.mark.parametrize(
    ("left", "choice", "asked"),
    [
        (("find", "write"), None, None),
        (("find", "write"), "required", "required"),
        (("find", "write"), "write", NAMED),
        (("find",), "write", None),
        (("find",), "auto", "auto"),
        ((), "auto", None),
        ((), "write", None),
    ],
)
def test_a_tool_that_is_gone_need_not_be_called(
    left: tuple[str, ...], choice: str | None, asked: object
) -> None:
    """Providers refuse settings of tools without tools, and a choice of an unknown tool."""
    request = replace(FORCED, tools=tuple(tool for tool in FORCED.tools if tool.name in left))
    made = body(request, tool_choice=choice)
    assert made.get("tool_choice") == asked
    assert ("parallel_tool_calls" in made) == (bool(left) and (asked is not None or choice is None))
    assert [tool["function"]["name"] for tool in made.get("tools", ())] == [*left]


USED = (AssistantMessage(tool_calls=(ToolCall(id="a", name="f", arguments=""),)),)
RESULTS = (ToolMessage(call_id="a", name="f", content=""),)


@pytest.mark.parametrize(
    ("choice", "transcript", "kept"),
    [
        ("required", ("Go",), True),
        ("find", ("Go",), True),
        ("required", ("Go", *USED, *RESULTS), False),
        ("find", ("Go", *USED, *RESULTS, ""), False),  # a note to the model: its answer was refused
        ("required", ("Go", *USED, *RESULTS, "More"), True),
        ("none", ("Go", *USED, *RESULTS), True),
    ],
)
def test_a_tool_has_to_be_called_once(
    choice: str, transcript: tuple[TranscriptMessage | str, ...], *, kept: bool
) -> None:
    """For each message of the user; otherwise no task would reach its answer."""
    messages = [said(message) if isinstance(message, str) else message for message in transcript]
    settings = until_called(ModelSettings(tool_choice=choice, seed=1), messages)
    assert settings == ModelSettings(tool_choice=choice if kept else "auto", seed=1)


def test_a_request_for_a_task_asks_for_nothing_else() -> None:
    """Whatever other tool the agent requires, the model may answer."""
    made = sent(only_create_task(FORCED, AGENT))
    assert [tool["function"]["name"] for tool in made.get("tools", ())] == ["create_task"]
    assert "tool_choice" not in made


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
    """Each kind of message has its form in Chat Completions; reasoning is not sent back."""
    assert build_request("m", BARE, [message]).messages == (expected,)


ASKED = said("Start")
CALL = AssistantMessage(tool_calls=(ToolCall(id="a", name="f", arguments="{}"),))
RESULT = ToolMessage(call_id="a", name="f", content="1")
TRANSCRIPT = (ASKED, CALL, RESULT, AssistantMessage(text="One"), said("Two"), CALL, RESULT)
"""Messages 0 to 6."""


def refers(*, answer: str, text: str = "") -> UserMessage:
    reference = TaskReference(task_id="t", state="completed", text=text, answer=answer)
    return said("Go on").model_copy(update={"references": (reference,)})


HEAD = "Go on\n\n[Task t, completed, came to this:]\n"


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([refers(answer="Four.")], [f"{HEAD}Four."]),
        ([AssistantMessage(text="Four."), refers(answer="Four.")], ["Four.", "Go on"]),
        ([AssistantMessage(closing="Four."), refers(answer="Four.")], ["Go on"]),
        ([AssistantMessage(text='{"n":4}'), refers(answer='{"n": 4}')], ['{"n":4}', "Go on"]),
        ([AssistantMessage(text="Five."), refers(answer="Four.")], ["Five.", f"{HEAD}Four."]),
        ([refers(answer="Four."), AssistantMessage(text="Four.")], [f"{HEAD}Four.", "Four."]),
        ([AssistantMessage(text="Four."), refers(answer="Four.", text="log")], ["Four.", f"{HEAD}log"]),
        ([refers(answer="Four.", text="log")] * 2, [f"{HEAD}log\n\nFour.", "Go on"]),
    ],
)
def test_a_reference_repeats_nothing(messages: list[TranscriptMessage], shown: list[str]) -> None:
    """Text of the conversation is not repeated: clients refer to the tasks of their own context."""
    assert [each["content"] for each in build_request("m", AGENT, messages).messages] == shown


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
    "a result without its call, which no workflow asks for": ((*TRANSCRIPT, sums(6)), ["Start", "[Sum]"]),
}


@pytest.mark.parametrize(("transcript", "expected"), COVERED.values(), ids=COVERED)
def test_a_summary_stands_for_what_it_covers(
    transcript: tuple[TranscriptMessage, ...], expected: list[str | None]
) -> None:
    """The first message stays, then comes the last summary, then later messages, calls first."""
    messages = build_request("m", BARE, transcript).messages
    assert [_brief(message) for message in messages] == expected


def _brief(message: Mapping[str, JsonValue]) -> str | None:
    """Return the content; notes in place of messages in brackets, calls as None."""
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
    """The last list counts; of two tools of one name the agent's own wins."""
    agent = Agent(id="a", name="", description="", plugins=[tools(own)])
    request = build_request("m", agent, [ASKED, listed("old"), CALL, RESULT, listed("own", "other"), ASKED])
    own_one, other = request.tools
    assert (own_one.name, own_one.description) == ("own", "Search.")
    assert other == listed("other").tools[0]


@pytest.mark.parametrize(("kept", "offered"), [("", False), ("r1-x", True)])
def test_results_can_be_read_on_where_there_is_one(kept: str, *, offered: bool) -> None:
    """After all other tools, which stay in the provider's cache; not once a summary covers the result."""
    asks = AssistantMessage(tool_calls=(ToolCall(id="c", name="find", arguments="{}"),))
    result = ToolMessage(call_id="c", name="find", content="…", whole=70_000 if kept else 0, kept=kept)
    transcript = [ASKED, asks, result]
    covered = [*transcript, SummaryMessage(end=3, text="Found.")]
    names = [tool.name for tool in build_request("m", AGENT, [*transcript, listed("more")]).tools]
    assert names == ["find", "write", "more", *(["read_result"] if offered else [])]
    assert [tool.name for tool in build_request("m", AGENT, covered).tools] == ["find", "write"]


MARK: JsonValue = {"type": "ephemeral"}
IMAGE: JsonValue = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def chosen(hints: str, *, cache: bool | None = None) -> ChosenModel:
    return ChosenModel(
        name="p/m", provider=Provider("p", cache=hints), model="m", settings=ModelSettings(cache=cache)
    )


def test_a_cache_key_is_that_of_an_agent_in_a_conversation() -> None:
    """For any task and run; an author's own field stays."""
    task = TaskRef(task_id="t", run_id="r", context_id="c", owner="o", agent_id="a")
    key = cache_key(task)
    assert cache_key(task.model_copy(update={"task_id": "u", "run_id": "s"})) == key
    others = [task.model_copy(update={name: "other"}) for name in ("context_id", "owner", "agent_id")]
    assert len({key, *map(cache_key, others)}) == 4
    assert with_cache_hints(REQUEST, chosen("key"), key).settings.extra_body == {"prompt_cache_key": key}
    own = replace(REQUEST, settings=ModelSettings(extra_body={"prompt_cache_key": "mine", "user": "u"}))
    assert with_cache_hints(own, chosen("key"), key).settings.extra_body == own.settings.extra_body


@pytest.mark.parametrize(
    ("messages", "marked"),
    [
        (["system: Be.", "user: Hi"], {0: "Be.", 1: "Hi"}),
        (["user: 1", "user: 2", "assistant: 3", "tool: 4", "system: 5"], {1: "2", 3: "4"}),
        (["system: Be.", "user: ", "tool: 2", "tool: 3"], {0: "Be.", 2: "2", 3: "3"}),
        ([], {}),
    ],
)
def test_breakpoints_are_behind_what_stays_the_same(messages: list[str], marked: dict[int, str]) -> None:
    """The first system prompt and the last two messages that are not replies."""
    given: list[dict[str, JsonValue]] = [
        dict(zip(("role", "content"), text.split(": "), strict=True)) for text in messages
    ]
    request = with_cache_hints(replace(REQUEST, messages=tuple(given)), chosen("breakpoints"), "k")
    assert [*request.messages] == [
        {**each, "content": [{"type": "text", "text": marked[place], "cache_control": MARK}]}
        if place in marked
        else each
        for place, each in enumerate(given)
    ]


def test_a_breakpoint_is_behind_the_last_text_of_parts() -> None:
    """Images are unchanged."""
    text: dict[str, JsonValue] = {"type": "text", "text": "Look"}
    for parts, marked in (([text, IMAGE], [{**text, "cache_control": MARK}, IMAGE]), ([IMAGE], [IMAGE])):
        request = replace(REQUEST, messages=({"role": "user", "content": [*parts]},))
        (message,) = with_cache_hints(request, chosen("breakpoints"), "k").messages
        assert message["content"] == marked


@pytest.mark.parametrize("hints", ["key", "breakpoints", ""])
def test_hints_can_be_switched_off(hints: str) -> None:
    """By the agent, or for a model; the agent's setting wins."""
    off = replace(REQUEST, settings=ModelSettings(cache=False))
    asked = ({"role": "user", "content": "Hi"},)
    on = replace(REQUEST, messages=asked, settings=ModelSettings(cache=True))
    assert with_cache_hints(off, chosen(hints, cache=True), "k") == off
    assert with_cache_hints(REQUEST, chosen(hints, cache=False), "k") == REQUEST
    assert (with_cache_hints(on, chosen(hints, cache=False), "k") == on) is (hints == "")


@pytest.mark.parametrize(
    ("wants", "sent"),
    [
        ({}, "system system user tool user tool system user"),
        ({"late_system": "user"}, "system system user tool user tool user user"),
        ({"reply_after_results": True}, "system system user tool assistant user tool system user"),
        (
            {"reply_after_results": True, "late_system": "user"},
            "system system user tool assistant user tool assistant user user",
        ),
    ],
)
def test_messages_stand_in_the_order_that_the_provider_takes(wants: dict[str, Any], sent: str) -> None:
    """Some refuse a user's message right after results, and a system prompt except at the beginning."""
    roles = ("system", "system", "user", "tool", "user", "tool", "system", "user")
    request = replace(REQUEST, messages=tuple({"role": role, "content": "x"} for role in roles))
    body = json.loads(json.dumps(chat_body(request, "m", Provider("p", **wants))))
    assert " ".join(message["role"] for message in body["messages"]) == sent


def test_a_message_without_a_word_says_so() -> None:
    """Several providers refuse a blank message, or a blank part of it; a reply may have calls instead."""
    picture = FilePart(media_type="image/png", url="https://example.org/a.png")
    blank = UserMessage(message_id="m", parts=(TextPart(text=" "),))
    shown = UserMessage(message_id="m", parts=(TextPart(text="\n"), picture))
    calls = AssistantMessage(text="\n\n", tool_calls=(ToolCall(id="c", name="a.b c", arguments="{}"),))
    transcript = [blank, shown, calls, calls.tool_calls[0].result(""), AssistantMessage(text=" ")]
    files = ReadFiles(AcceptedTypes(("image/*",)))
    messages = build_request("m", BARE, transcript, files=files).messages
    assert [message["content"] for message in messages] == [
        "[empty]",
        [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}],
        None,
        "[empty]",
    ]
    assert "a_b_c" in str(messages[2])


def test_an_empty_list_offers_nothing() -> None:
    """Neither its own tools nor those of an earlier list; providers refuse an empty array."""
    assert "tools" not in sent(build_request("m", BARE, [listed("old"), ASKED, listed()]))


def test_a_list_of_tools_is_no_message() -> None:
    """The model does not read it, and it is not counted among left-out messages."""
    transcript = (ASKED, listed("f"), CALL, RESULT, said("Two"), listed("g"), SummaryMessage(end=4))
    messages = build_request("m", BARE, transcript).messages
    assert [_brief(message) for message in messages] == ["Start", "[2]", "Two"]
    assert sent_messages(transcript) == [ASKED, said("Two")]


def test_a_refused_reply_of_which_nothing_is_left_is_not_sent() -> None:
    """Some providers refuse an empty message; the problem is in the next message."""
    replies = [AssistantMessage(refused="No."), AssistantMessage(text="Words", refused="No.")]
    messages = build_request("m", BARE, [ASKED, *replies, said("No.")]).messages
    assert [_brief(message) for message in messages] == ["Start", "Words", "No."]


@pytest.mark.parametrize(
    "written",
    ["", " ", "{", "[1]", "null", "no JSON", "[" * 10_000, '{"a": 1}', '{"b": NaN}', '{"b": "\\ud83d"}'],
)
def test_arguments_go_back_as_an_object(written: str) -> None:
    """For any text of the model, a provider that parses the transcript can read it."""
    read = json.loads(readable_arguments(written))
    assert isinstance(read, dict)
    assert (written.strip() in read.values()) or read in ({}, {"a": 1})
