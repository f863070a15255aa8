"""Chat Completions, byte for byte and field for field: requests, replies, and replies sent back."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.activities.model.models import returned
from everloop.activities.model.reply import ReplyAssembler
from everloop.activities.model.request import build_request
from everloop.agents.agent import Agent
from everloop.models.catalogue import ModelEntry, Provider
from everloop.models.chat import chat_body
from everloop.models.chat_reply import ChatReader
from everloop.models.events import read_events
from everloop.models.interface import (
    MAX_OPAQUE,
    CallDelta,
    Ended,
    ModelDownError,
    ModelRequest,
    Opaque,
    OutputSchema,
)
from everloop.workflows.contract.agent_settings import ModelSettings
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from tests.support.cutting import cut

Object = dict[str, Any]


def end_of(*deltas: Object, reason: str | None = "stop", usage: JsonValue = None) -> Ended:
    """Return the end of a reply with these deltas."""
    reader = ChatReader()
    for delta in deltas:
        _ = [*reader.read({"choices": [{"delta": delta}]})]
    _ = [*reader.read({"choices": [{"delta": {}, "finish_reason": reason}], "usage": usage})]
    return reader.end(is_done=False)


def detail(kind: str, **fields: JsonValue) -> Object:
    return {"reasoning_details": [{"type": kind, "index": 0, "format": "f", **fields}]}


def thinking(text: str) -> Object:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": True}


def said(text: str) -> Object:
    return {"type": "text", "text": text}


def call(index: int | None, **extra: JsonValue) -> Object:
    return {"tool_calls": [{"index": index, "id": "", "function": {"name": "f"}, **extra}]}


OPAQUE: dict[str, tuple[list[Object], Opaque]] = {
    "reasoning in a field": (
        [{"reasoning_content": ""}, {"reasoning_content": "I "}, {"reasoning_content": "see."}],
        Opaque(reasoning_field="reasoning_content"),
    ),
    "the same in two fields": (
        [{"reasoning": "I ", "reasoning_content": "I "}, {"reasoning": "see", "reasoning_content": "see"}],
        Opaque(reasoning_field="reasoning_content"),
    ),
    "one field after the other": (
        [{"reasoning": "I "}, {"reasoning_content": "see"}],
        Opaque({"reasoning": "I ", "reasoning_content": "see"}),
    ),
    "details, by index and type; no second copy of the text": (
        [
            {"reasoning": "I ", **detail("t", text="I ")},
            {"reasoning": "see", **detail("t", text="see")},
            detail("t", signature="s"),
            detail("t", signature=None, text=""),
            detail("encrypted", data="d", id="1"),
            detail("encrypted", data="e", id="2"),
        ],
        Opaque(
            {
                "reasoning_details": [
                    {"type": "t", "index": 0, "format": "f", "text": "I see", "signature": "s"},
                    {"type": "encrypted", "index": 0, "format": "f", "data": "d", "id": "1"},
                    {"type": "encrypted", "index": 0, "format": "f", "data": "e", "id": "2"},
                ]
            }
        ),
    ),
    "parts of the content": (
        [
            {"content": ""},
            {"content": [thinking("I ")]},
            {"content": [thinking("see"), said("Ye")]},
            {"content": "s"},
        ],
        Opaque({"content": [thinking("I see"), said("Yes")]}),
    ),
    "items that say that they are others": (
        [{"own": [{**said("a"), "index": 0}, {**said("b"), "index": 1}, said("c"), said("d"), "e"]}],
        Opaque({"own": [{**said("a"), "index": 0}, {**said("b"), "index": 1}, said("cd"), "e"]}),
    ),
    "parts without a thought": ([{"content": [said("Yes")]}], Opaque()),
    "a field of a call, and one that comes behind it": (
        [call(0, extra={"g": {"sig": "a"}}), call(1), call(1, extra={"g": {"sig": "b"}})],
        Opaque(calls={0: {"extra": {"g": {"sig": "a"}}}, 1: {"extra": {"g": {"sig": "b"}}}}),
    ),
    "texts, lists and objects go on, the rest is replaced; flags and nulls are none": (
        [
            {"a": "1", "b": [1], "c": {"d": "x"}, "n": 1, "f": {"thought": True}, "z": None, "e": []},
            {"a": "2", "b": [2], "c": {"g": "y"}, "n": 2, "f": {"thought": False}, "is": True},
        ],
        Opaque({"a": "12", "b": [1, 2], "c": {"d": "x", "g": "y"}, "n": 2}),
    ),
    "what the API names": (
        [{"role": "assistant", "content": "Hi", "index": 0, "logprobs": {}, "audio": {}, "annotations": []}],
        Opaque(),
    ),
}


@pytest.mark.parametrize(("deltas", "expected"), OPAQUE.values(), ids=OPAQUE)
def test_fields_that_nobody_reads_are_put_together(deltas: list[Object], expected: Opaque) -> None:
    """As if the provider had sent them in one piece."""
    assert end_of(*deltas).opaque == expected


@given(
    st.lists(
        st.tuples(st.sampled_from(["content", "reasoning", "own", "detail", "call"]), st.text(min_size=1))
    ),
    st.data(),
)
def test_cuts_of_fields_do_not_matter(pieces: list[tuple[str, str]], data: st.DataObject) -> None:
    """For any cuts of a stream's texts the same reply is sent back."""
    cuts = [
        [(kind, part) for part in cut(text, data.draw(st.sets(st.integers(1, 9))))] for kind, text in pieces
    ]
    whole, cut_up = [assembled(kind) for kind in (pieces, [part for parts in cuts for part in parts])]
    assert cut_up == whole


def assembled(pieces: Iterable[tuple[str, str]]) -> AssistantMessage:
    """Return the reply of a stream with texts in these fields."""
    reader, assembler = ChatReader(), ReplyAssembler(1)
    for place, text in pieces:
        match place:
            case "detail":
                delta = detail("reasoning.text", text=text)
            case "call":
                delta = call(0, own=text)
            case _:
                delta = {place: text}
        for each in reader.read({"choices": [{"delta": delta}]}):
            assembler.feed(each)
    assembler.feed(reader.end(is_done=True))
    assembler.close()
    return assembler.reply


def test_too_much_to_send_back_is_dropped_as_a_whole() -> None:
    """A provider refuses half of its opaque fields; calls and text stay."""
    for size, is_kept in ((MAX_OPAQUE - 20, True), (MAX_OPAQUE, False)):
        assembler, own = ReplyAssembler(1), {"sig": "x" * (size // 2)}
        for delta in (CallDelta(0, "f", "{}"), Ended("stop", opaque=Opaque(own, {0: own}, "reasoning"))):
            assembler.feed(delta)
        assembler.close()
        [made] = assembler.reply.tool_calls
        assert (bool(made.opaque), bool(assembler.reply.opaque)) == (is_kept, is_kept)
        assert (assembler.is_opaque_dropped, assembler.reply.reasoning_field) == (not is_kept, "reasoning")


def test_no_more_is_gathered_than_goes_back() -> None:
    """Each piece copies the text: without a limit the cost would grow quadratically."""
    pieces = [detail("t", text="x" * 1000) for _ in range(3 * MAX_OPAQUE // 1000)]
    [whole] = cast("list[Object]", end_of(*pieces).opaque.fields["reasoning_details"])
    assert MAX_OPAQUE < len(whole["text"]) < MAX_OPAQUE + 2000


def test_reasoning_of_two_places_goes_back_under_its_own_name() -> None:
    """The text of the field, and no more, is the provider's own."""
    reply = assembled([("reasoning", "I "), ("content", "<think>see</think>Yes")])
    assert (reply.reasoning, reply.reasoning_field, reply.opaque) == ("I see", "", '{"reasoning":"I "}')


NUMBERS: dict[str, list[tuple[int | None, str, str]]] = {
    "by index": [(0, "a", "f"), (0, "", ""), (1, "b", "f"), (0, "", "")],
    "by id, whatever the index": [(1, "a", "f"), (0, "a", "f"), (0, "b", "f"), (1, "b", "f"), (0, "a", "f")],
    "an id that comes late": [(0, "", "f"), (0, "a", "")],
    "neither, each with a name": [(None, "", "f"), (None, "", ""), (None, "", "f")],
    "all at index 0, with ids": [(0, "a", "f"), (0, "b", "f")],
    "from one on": [(1, "a", "f"), (2, "b", "f"), (1, "", "")],
    "the text null": [(0, "null", "f"), (1, "null", "f")],
}
EXPECTED = [[0, 0, 1, 0], [0, 0, 1, 1, 0], [0, 0], [0, 0, 1], [0, 1], [0, 1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("fragments", "numbers"), [*zip(NUMBERS.values(), EXPECTED, strict=True)], ids=NUMBERS
)
def test_fragments_find_their_call(fragments: list[tuple[int | None, str, str]], numbers: list[int]) -> None:
    """Calls are numbered in their order; a name comes once."""
    reader, found = ChatReader(), list[CallDelta]()
    for index, id_, name in fragments:
        fragment = {"index": index, "id": id_, "function": {"name": name, "arguments": "-"}}
        deltas = reader.read({"choices": [{"delta": {"tool_calls": [fragment]}}]})
        found += [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert [delta.call for delta in found] == numbers
    assert [delta.call for delta in found if delta.name] == [*range(len(set(numbers)))]


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("function_call", "tool_calls"),
        ("model_length", "length"),
        ("SAFETY", "content_filter"),
        ("content_filter: OTHER", "content_filter"),
        ("sensitive", "content_filter"),
        ("model_context_window_exceeded", "length"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
    ],
)
def test_reasons_have_one_name(reason: str, meant: str) -> None:
    """For each provider's own names."""
    assert end_of({"content": "Hi"}, reason=reason).reason == meant


@pytest.mark.parametrize("reason", [None, "", "error", "insufficient_system_resource"])
def test_what_broke_off_is_no_end(reason: str | None) -> None:
    """Neither a stream that just stops, nor one with a provider's error."""
    with pytest.raises(ModelDownError):
        end_of({"content": "Hi"}, reason=reason)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({"prompt_tokens": 0, "completion_tokens": None}, None),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input_tokens=9, output_tokens=5, cached_tokens=4, cache_write_tokens=2, reasoning_tokens=3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            Usage(input_tokens=9, output_tokens=5, cached_tokens=4),
        ),
        (
            {"prompt_tokens": 27, "completion_tokens": 45, "total_tokens": 576},
            Usage(input_tokens=27, output_tokens=549),
        ),
    ],
    ids=["none", "of nothing", "OpenAI", "DeepSeek", "thoughts in the total alone, Gemini"],
)
def test_tokens_are_counted_as_the_provider_does(usage: JsonValue, expected: Usage | None) -> None:
    """Including those that cost less, and those that are easily missed."""
    assert end_of({"content": "Hi"}, usage=usage).usage == expected


STREAM = (
    'data: {"a": "🜁"}\n\n: ping\n\nevent: x\ndata:1\ndata: 2\n\n'
    'error: {"code":400}\n\nevent: error\ndata: 3\n\ndata: [DONE]\n'
)
EVENTS = [
    ("data", '{"a": "🜁"}'),
    ("data", "1\n2"),
    ("error", '{"code":400}'),
    ("error", "3"),
    ("data", "[DONE]"),
]


@given(st.sets(st.integers(1, 200)), st.sampled_from(["\n", "\r\n", "\r"]))
async def test_bytes_may_be_cut_anywhere(places: set[int], newline: str) -> None:
    """Within a character, a line's end, or a word; the last event needs no blank line."""
    body = STREAM.replace("\n", newline).encode()
    pieces = [piece.encode("latin-1") for piece in cut(body.decode("latin-1"), places)]
    assert [event async for event in read_events(streamed(pieces))] == EVENTS


async def test_a_line_without_end_was_cut() -> None:
    """It is not an event, and its half is not parsed as invalid JSON."""
    assert [event async for event in read_events(streamed([b'data: {"a": 1}\n\ndata: {"b']))] == [
        ("data", '{"a": 1}')
    ]


async def streamed(pieces: Sequence[bytes]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


ASKED = ModelRequest("p/m", ({"role": "user", "content": "Hi"},))


def body(request: ModelRequest = ASKED, settings: ModelSettings | None = None, **terms: Any) -> Object:  # noqa: ANN401 -- of a `Provider`
    """Return the request body for a provider with these properties."""
    asked = ModelRequest(
        request.model, request.messages, request.tools, settings or request.settings, request.output
    )
    return chat_body(asked, "m", Provider("p", **terms))


def test_a_provider_is_asked_in_its_own_words() -> None:
    """Names of fields, and omitted ones, follow the catalogue; the author's own fields do not."""
    settings = ModelSettings(max_tokens=9, effort="high", seed=1, extra_body={"stream_options": {}})
    assert body(settings=settings).keys() >= {"max_tokens", "reasoning_effort", "seed"}
    assert body(settings=settings, max_tokens_field="most")["most"] == 9
    assert body(settings=settings, effort="reasoning")["reasoning"] == {"effort": "high"}
    assert "reasoning_effort" not in body(settings=settings, effort="")
    models = {"": ModelEntry(), "m": ModelEntry(omit=frozenset({"seed", "stream_options"}))}
    assert "seed" not in body(settings=settings, models=models)
    assert body(settings=settings, models=models)["stream_options"] == {}
    assert "stream_options" not in body(models=models)


@pytest.mark.parametrize(
    ("by", "kind"),
    [("json_schema", "json_schema"), ("json_object", "json_object"), ("tool", ""), ("prompt", "")],
)
def test_the_form_of_the_answer_is_asked_for_where_there_is_a_field(by: Any, kind: str) -> None:  # noqa: ANN401 -- a rung
    """Other means are in the messages, or among the tools."""
    made = body(ModelRequest("p/m", (), output=OutputSchema("city", {"type": "object"}, by)))
    assert made.get("response_format", {}).get("type", "") == kind


REPLY = AssistantMessage(
    text="Yes",
    reasoning="I see",
    tool_calls=(
        ToolCall(id="r00001c01", name="f", arguments="{}", opaque='{"extra":{"sig":"a"}}'),
        ToolCall(id="r00001c02", name="f", arguments="{}"),
    ),
    source="p/m",
    opaque='{"own":[1]}',
    reasoning_field="reasoning",
)
PLAIN = REPLY.model_copy(update={"opaque": "", "reasoning_field": "", "tool_calls": ()})


def sent(reply: AssistantMessage, source: str = "p/m", **terms: Any) -> Object:  # noqa: ANN401 -- of a `Provider`
    """Return a reply in the form that a provider gets back."""
    request, provider = build_request(source, AGENT, [reply]), Provider("p", **terms)
    messages = returned(request.messages, source, provider)
    return chat_body(ModelRequest(source, messages), "m", provider)["messages"][0]


AGENT = Agent(id="a", name="", description="")
FILL: dict[str, Any] = {"fill_message": {"reasoning": ""}, "fill_call": {"extra": "any"}}


def test_what_came_goes_back_to_where_it_came_from() -> None:
    """On its message or its call; fields that the provider refuses are left out."""
    message = sent(REPLY)
    assert (message["own"], message["reasoning"]) == ([1], "I see")
    assert [made.get("extra") for made in message["tool_calls"]] == [{"sig": "a"}, None]
    assert "opaque" not in json.dumps(message)
    omitting = {"": ModelEntry(omit=frozenset({"reasoning"}))}
    assert sent(REPLY, models=omitting).keys() == message.keys() - {"reasoning"}


def test_nothing_goes_to_another_model() -> None:
    """Neither on the message nor on its calls."""
    plain = sent(REPLY, source="p/other")
    assert plain.keys() == {"role", "content", "tool_calls"}
    assert all(made.keys() == {"id", "type", "function"} for made in plain["tool_calls"])
    assert sent(PLAIN) == {"role": "assistant", "content": "Yes"}


def test_what_a_provider_wants_is_filled_in_where_nothing_stands() -> None:
    """On each message by itself, on calls only if none of the reply has it: parallel ones share it."""
    assert [made.get("extra") for made in sent(REPLY, **FILL)["tool_calls"]] == [{"sig": "a"}, None]
    assert sent(REPLY, **FILL)["reasoning"] == "I see"
    other = sent(REPLY, source="p/other", **FILL)
    assert (other["reasoning"], [made["extra"] for made in other["tool_calls"]]) == ("", ["any", "any"])
    assert sent(PLAIN, **FILL) == {"role": "assistant", "content": "Yes", "reasoning": ""}


@pytest.mark.parametrize(
    ("text", "parts"), [("Yes", [thinking("I see"), said("Yes")]), ("No", [thinking("I see"), said("No")])]
)
def test_a_text_that_a_plugin_changed_stays_changed(text: str, parts: list[Object]) -> None:
    """The thoughts are sent back unchanged."""
    content = [thinking("I see"), said("Y"), said("es")] if text == "No" else parts
    reply = PLAIN.model_copy(update={"text": text, "opaque": json.dumps({"content": content})})
    assert sent(reply)["content"] == parts
