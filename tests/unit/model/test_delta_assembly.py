"""Chunks of any provider become one reply."""

from collections.abc import Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.activities.model.reply import (
    MAX_TAG_LENGTH,
    ArgumentsDelta,
    ReplyAssembler,
    ThinkingSplitter,
    VisibleDelta,
    coalesce,
)
from everloop.models.chat_reply import ChatReader
from everloop.models.interface import Ended, ModelDownError, TextDelta, ThoughtDelta
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from tests.support.cutting import cut

Json = dict[str, JsonValue]


def chunk(delta: JsonValue = None, *, finish: str | None = None, usage: JsonValue = None) -> Json:
    """Return a chunk with one choice."""
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "r", "model": "m", "choices": [choice], "usage": usage}


def call_chunk(
    index: int | None = 0, id_: str | None = None, name: str | None = None, arguments: str | None = None
) -> Json:
    """Return a chunk with one fragment of a tool call."""
    function: Json = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": id_, "function": function}]})


def assemble(chunks: Iterable[Json], *, finish: str = "stop") -> tuple[AssistantMessage, list[VisibleDelta]]:
    """Return the whole reply and its deltas."""
    shown, assembler = feed([*chunks, chunk({}, finish=finish)])
    return assembler.reply, shown


def feed(chunks: Iterable[Json], drafted: Collection[str] = ()) -> tuple[list[VisibleDelta], ReplyAssembler]:
    """Assemble a stream of chunks; return also the deltas shown of it."""
    reader, assembler = ChatReader(), ReplyAssembler(7, frozenset(drafted))
    shown = [each for part in chunks for delta in reader.read(part) for each in assembler.feed(delta)]
    shown += assembler.feed(reader.end(is_done=False))
    return coalesce([*shown, *assembler.close()]), assembler


def test_calls_stand_in_the_order_in_which_they_began() -> None:
    """Each with its own arguments, and with an id of ours."""
    reply, _ = assemble(
        [call_chunk(0, "a", "f", "{"), call_chunk(1, "b", "g", "["), call_chunk(0, arguments="}")]
    )
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    assert calls == [("r00007c01", "f", "{}"), ("r00007c02", "g", "[")]


@pytest.mark.parametrize(
    "usage_chunks",
    [
        [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}],
        [chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 2})],
        [
            chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 1}),
            chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 2}),
        ],
        [{"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, chunk(None)],
    ],
    ids=["own chunk", "with a choice", "in every chunk", "no choices at all"],
)
def test_usage_is_found(usage_chunks: list[Json]) -> None:
    """The last usage counts, in any provider's place for it."""
    reply, _ = assemble([chunk({"content": "Hi"}), *usage_chunks])
    assert reply.usage == Usage(input_tokens=3, output_tokens=2)
    assert reply.text == "Hi"


def thought(text: str, number: int) -> list[VisibleDelta]:
    """Return a whole thought, as subscribers get it."""
    id_ = f"r00007t{number:02}"
    return [ThoughtDelta(text, id_), ThoughtDelta("", id_, last=True)]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_no_text(field: str) -> None:
    """Reasoning is in fields of its own or in tags; each thought has an id and an end."""
    chunks = [
        chunk({field: "I see. "}),
        chunk({"content": "<think>Well.</think><reasoning>So.</reasoning>Yes."}),
    ]
    reply, shown = assemble(chunks)
    assert (reply.reasoning, reply.text) == ("I see. Well.So.", "Yes.")
    assert shown == [*thought("I see. ", 1), *thought("Well.", 2), *thought("So.", 3), TextDelta("Yes.")]


def test_a_refusal_is_an_answer() -> None:
    """A refusal in place of an answer reaches the client."""
    assert assemble([chunk({"refusal": "I cannot."})])[0].text == "I cannot."


def test_a_call_without_a_name_is_no_reply() -> None:
    """The stream was cut; its rest is not taken for the answer."""
    with pytest.raises(ModelDownError):
        feed([call_chunk(0, "a", None, "{}"), chunk({}, finish="tool_calls")])


def test_a_call_whose_name_was_cut_off_is_none() -> None:
    """The reply was too long; the calls before it are complete."""
    calls = [call_chunk(0, "a", "f", "{}"), call_chunk(1, "b")]
    reply, _ = assemble(calls, finish="length")
    assert [call.name for call in reply.tool_calls] == ["f"]


def test_a_lone_half_of_a_character_is_replaced() -> None:
    """Half a character, which could not be stored, does not fail the call."""
    thought = chunk({"reasoning": "b\ud83d"})
    reply, _ = assemble([thought, chunk({"content": "a\ud83d"}), call_chunk(0, "a\ude00", "f", '"\ud83d"')])
    assert (reply.text, reply.reasoning) == ("a\ufffd", "b\ufffd")
    assert reply.tool_calls == (ToolCall(id="r00007c01", name="f", arguments='"\ufffd"'),)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([call_chunk(0, "a", "draw", '{"x"'), call_chunk(0, arguments=":1}")], [(0, '{"x":1}')]),
        ([call_chunk(0, "a", "other", "{}"), call_chunk(1, "b", "draw", "[]")], [(1, "[]")]),
        (
            [call_chunk(0, "a", None, "{"), call_chunk(0, "a", "draw"), call_chunk(0, arguments="}")],
            [(0, "{}")],
        ),
        ([call_chunk(0, "a", "draw", '"\ud83d'), call_chunk(0, arguments='\ude00"')], [(0, '"😀"')]),
        (
            [call_chunk(0, "a", "draw", "1"), call_chunk(1, "b", "draw", "2"), call_chunk(0, arguments="3")],
            [(0, "1"), (1, "2"), (0, "3")],
        ),
    ],
    ids=["fragments", "another tool", "late name", "half a character", "interleaved"],
)
def test_arguments_are_told_while_they_come(chunks: list[Json], expected: list[tuple[int, str]]) -> None:
    """Those of the given tools, by the number of their call; nothing before the tool's name is complete."""
    deltas, _ = feed([*chunks, chunk({}, finish="stop")], {"draw"})
    assert [(d.call, d.text) for d in deltas if isinstance(d, ArgumentsDelta)] == expected


PIECES = ["<thinking>", "</thinking>", "<thin", "word ", "<", "\ud83d", "\ude00", "é"]
CONTENT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
SEGMENTS = st.lists(
    st.tuples(st.sampled_from(["content", "reasoning", "call 0", "call 1"]), CONTENT), max_size=6
)


@given(SEGMENTS, st.data())
def test_cuts_do_not_matter(segments: list[tuple[str, str]], data: st.DataObject) -> None:
    """For any cuts of text, reasoning and arguments, the reply and the order of its deltas are the same."""
    whole = [segment_chunk(kind, content) for kind, content in segments]
    pieces = [
        segment_chunk(kind, piece)
        for kind, content in segments
        for piece in cut(content, data.draw(st.sets(st.integers(1, 30))))
    ]
    assert assemble(pieces) == assemble(whole)


def segment_chunk(kind: str, content: str) -> Json:
    """Return the chunk with the content in one of its fields."""
    if kind.startswith("call"):
        return call_chunk(int(kind[-1]), None, "f", content)
    return chunk({kind: content})


LONG_ID = "x" * (MAX_TAG_LENGTH - len('<thinking id="">'))

TAGS = [
    "<thinking>",
    "</thinking>",
    "<think>",
    "</think>",
    "</reasoning>",
    '<thinking id="a">',
    "<thinking id='b' >",
    f'<thinking id="{LONG_ID}x">',
]
FRAGMENTS = [
    "<thinking i",
    "<thinkingcap>",
    "<",
    ">",
    "</",
    "<think",
    'ing id="',
    '"',
    "'",
    " ",
    "\n",
    "é",
    "😀",
]
TAG_PIECES = st.sampled_from([*TAGS, *FRAGMENTS])
TAGGED = st.lists(TAG_PIECES, max_size=12).map("".join)
NO_TAGS = st.sampled_from(["a", " <", "b>", "<b>", "</i>", "<thinker>", "<thinkingcap "])


def split(*pieces: str, starts_thinking: bool = False) -> list[VisibleDelta]:
    """Feed the pieces and close."""
    splitter = ThinkingSplitter(starts_thinking=starts_thinking)
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)]
    return coalesce([*deltas, *splitter.close()])


def inline(text: str, id_: str = "") -> list[VisibleDelta]:
    """Return a thought that was closed."""
    return [*([ThoughtDelta(text, id_)] if text else ()), ThoughtDelta("", id_, last=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no tags", [TextDelta("no tags")]),
        ("a<thinking>b</thinking>c", [TextDelta("a"), *inline("b"), TextDelta("c")]),
        ("<think>b</thinking>c</think>d", [*inline("b</thinking>c"), TextDelta("d")]),
        ('<reasoning id="plan">b</reasoning>c', [*inline("b", "plan"), TextDelta("c")]),
        ("<thinking id = 'plan' >b</thinking>", inline("b", "plan")),
        ('<thinking\nid="">b</thinking>', inline("b")),
        ("<thinking></thinking>c", [*inline(""), TextDelta("c")]),
        ('<think id="1">a</think><thinking id="2">b</thinking>', [*inline("a", "1"), *inline("b", "2")]),
        ("a<thinking>to the end", [TextDelta("a"), ThoughtDelta("to the end")]),
        ("<thinking>a</think", [ThoughtDelta("a</think")]),
        ("a</thinking>b", [TextDelta("a</thinking>b")]),
        ("<thinkingcap>on</thinkingcap>", [TextDelta("<thinkingcap>on</thinkingcap>")]),
        ("<thinker>on", [TextDelta("<thinker>on")]),
        ("<thinking", [TextDelta("<thinking")]),
        ('<thinking mood="calm">b', [TextDelta('<thinking mood="calm">b')]),
        ("<Thinking>b", [TextDelta("<Thinking>b")]),
        ('<thinking id="a<b">c', [TextDelta('<thinking id="a<b">c')]),
        ("<thinking <thinking>b", [TextDelta("<thinking "), ThoughtDelta("b")]),
        ("1 < 2 <thinking>b", [TextDelta("1 < 2 "), ThoughtDelta("b")]),
        (f'<thinking id="{LONG_ID}">b', [ThoughtDelta("b", LONG_ID)]),
        (f'<thinking id="{LONG_ID}x">b', [TextDelta(f'<thinking id="{LONG_ID}x">b')]),
        (
            "<thinking>use <thinking> tags</thinking>c</thinking>d",
            [*inline("use <thinking> tags"), TextDelta("c</thinking>d")],
        ),
    ],
)
def test_tags_are_split_out_of_the_text(text: str, expected: list[VisibleDelta]) -> None:
    """Well-formed tags contain a thought, similar text stays text, and tags do not nest."""
    assert split(text) == expected
    assert split(*text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a</think>b", [*inline("a"), TextDelta("b")]),
        ("<think>a</think>b", [*inline("a"), TextDelta("b")]),
        ("a</reasoning>b<think>c", [*inline("a"), TextDelta("b"), ThoughtDelta("c")]),
        ("a<think>b</think>c", [*inline("a<think>b"), TextDelta("c")]),
        ("<thi", [ThoughtDelta("<thi")]),
    ],
)
def test_a_reply_may_start_with_thinking(text: str, expected: list[VisibleDelta]) -> None:
    """The prompt ends with the opening tag, and the server may or may not repeat it."""
    assert split(text, starts_thinking=True) == expected
    assert split(*text, starts_thinking=True) == expected


def test_a_thought_in_a_field_is_all_there_is_before_the_answer() -> None:
    """The server has split it off: later text is the answer, though the reply starts with thinking."""
    assembler = ReplyAssembler(7, starts_thinking=True)
    shown = [each for d in (ThoughtDelta("a"), TextDelta("b"), Ended("stop")) for each in assembler.feed(d)]
    assert [*shown, *assembler.close()] == [*thought("a", 1), TextDelta("b")]


def test_tags_are_those_of_the_agent() -> None:
    """Names with special characters of patterns, too; an empty list disables tags."""
    text = "<a.b>c</a.b><think>d"
    deltas = [ThinkingSplitter(tags).feed(text) for tags in (["a.b"], [])]
    assert deltas == [[*inline("c"), *ThinkingSplitter(["a.b"]).feed("<think>d")], [TextDelta(text)]]


@given(TAGGED, st.sets(st.integers(min_value=1, max_value=400)), st.booleans())
def test_cuts_of_tags_do_not_matter(text: str, places: set[int], starts: bool) -> None:  # noqa: FBT001 -- drawn
    """For any cuts the thoughts and the text are those of the uncut text."""
    assert split(*cut(text, places), starts_thinking=starts) == split(text, starts_thinking=starts)


@given(st.lists(NO_TAGS, max_size=8).map("".join))
def test_only_a_possible_tag_is_held_back(text: str) -> None:
    """Text in which no tag can begin passes at once."""
    splitter = ThinkingSplitter()
    deltas = splitter.feed(text + ".")
    assert coalesce(deltas) == [TextDelta(text + ".")]
    assert splitter.close() == []
