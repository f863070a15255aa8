"""From the chunks of any provider to one reply."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk
from pydantic import JsonValue

from everloop.activities.model.reply import (
    MAX_TAG_LENGTH,
    ArgumentsDelta,
    Delta,
    IncompleteReplyError,
    ReplyAssembler,
    TextDelta,
    ThinkingSplitter,
    ThoughtDelta,
    coalesce,
)
from everloop.workflows.contract.messages import AssistantMessage, ToolCall, Usage
from tests.support.cutting import cut

Json = dict[str, JsonValue]


def chunk(
    delta: JsonValue = None, *, finish: str | None = None, usage: JsonValue = None
) -> ChatCompletionChunk:
    """Return a chunk with one choice, made like the client makes it: without validation."""
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
    return raw_chunk({"id": "r", "model": "m", "choices": [choice], "usage": usage})


def raw_chunk(content: Json) -> ChatCompletionChunk:
    """Return a chunk that holds just this."""
    return ChatCompletionChunk.construct(None, **content)


def call_chunk(
    index: int | None = 0, id_: str | None = None, name: str | None = None, arguments: str | None = None
) -> ChatCompletionChunk:
    """Return a chunk with one fragment of a tool call."""
    function: Json = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": id_, "function": function}]})


def assemble(
    chunks: Iterable[ChatCompletionChunk], *, finish: str = "stop"
) -> tuple[AssistantMessage, list[Delta]]:
    """Return the whole reply and its deltas."""
    assembler = ReplyAssembler(position=7)
    deltas = [delta for part in [*chunks, chunk({}, finish=finish)] for delta in assembler.feed(part)]
    deltas += assembler.close()
    return assembler.reply, coalesce(deltas)


def calls_of(chunks: Iterable[ChatCompletionChunk]) -> list[tuple[str, str, str]]:
    """Return (id, name, arguments) of the calls."""
    reply, _ = assemble(chunks)
    return [(call.id, call.name, call.arguments) for call in reply.tool_calls]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [
                call_chunk(0, "a", "search", ""),
                call_chunk(0, None, None, '{"q"'),
                call_chunk(0, "", "", ":1}"),
            ],
            [("r00007c01", "search", '{"q":1}')],
        ),
        (
            [call_chunk(0, "a", "f", "{"), call_chunk(1, "b", "g", "["), call_chunk(0, arguments="}")],
            [("r00007c01", "f", "{}"), ("r00007c02", "g", "[")],
        ),
        ([call_chunk(0, "a", "f", "{"), call_chunk(0, "a", "f", "}")], [("r00007c01", "f", "{}")]),
        (
            [call_chunk(0, "a", "f", "{}"), call_chunk(0, "b", "f", "{}")],
            [("r00007c01", "f", "{}"), ("r00007c02", "f", "{}")],
        ),
        (
            [call_chunk(None, "a", "f", "{}"), call_chunk(None, "b", "g")],
            [("r00007c01", "f", "{}"), ("r00007c02", "g", "")],
        ),
        (
            [call_chunk(0, None, "f", "{}"), call_chunk(1, None, "f", "{}")],
            [("r00007c01", "f", "{}"), ("r00007c02", "f", "{}")],
        ),
    ],
    ids=["fragments", "interleaved", "id repeated", "all at index 0", "no index", "no ids"],
)
def test_tool_calls_are_put_together(
    chunks: list[ChatCompletionChunk], expected: list[tuple[str, str, str]]
) -> None:
    """Fragments find their call, however the provider marks them."""
    assert calls_of(chunks) == expected


@pytest.mark.parametrize(
    "usage_chunks",
    [
        [raw_chunk({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})],
        [chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 2})],
        [
            chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 1}),
            chunk({}, usage={"prompt_tokens": 3, "completion_tokens": 2}),
        ],
        [raw_chunk({"usage": {"prompt_tokens": 3, "completion_tokens": 2}}), chunk(None)],
    ],
    ids=["own chunk", "with a choice", "in every chunk", "no choices at all"],
)
def test_usage_is_found(usage_chunks: list[ChatCompletionChunk]) -> None:
    """The last usage counts, wherever the provider puts it."""
    reply, _ = assemble([chunk({"content": "Hi"}), *usage_chunks])
    assert reply.usage == Usage(input_tokens=3, output_tokens=2)
    assert reply.text == "Hi"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_no_text(field: str) -> None:
    """Reasoning comes in fields of its own or in tags, and never ends up in the answer."""
    chunks = [chunk({field: "I see. "}), chunk({"content": "<thinking>Well.</thinking>Yes."})]
    reply, deltas = assemble(chunks)
    assert (reply.reasoning, reply.text) == ("I see. Well.", "Yes.")
    assert isinstance(deltas[0], ThoughtDelta)


def test_a_refusal_is_an_answer() -> None:
    """What the model says instead of an answer reaches the client."""
    assert assemble([chunk({"refusal": "I cannot."})])[0].text == "I cannot."


@pytest.mark.parametrize(
    "chunks",
    [[], [chunk({"content": "Hel"})], [call_chunk(0, "a", None, "{}"), chunk({}, finish="tool_calls")]],
    ids=["nothing", "no finish reason", "nameless call"],
)
def test_a_cut_stream_is_no_reply(chunks: list[ChatCompletionChunk]) -> None:
    """A stream without a proper end raises; what came of it is not taken for the answer."""
    assembler = ReplyAssembler(position=7)
    for part in chunks:
        assembler.feed(part)
    with pytest.raises(IncompleteReplyError):
        assembler.close()


def test_a_lone_half_of_a_character_is_replaced() -> None:
    """Half a character, which could not be stored, does not fail the call."""
    reply, _ = assemble([chunk({"content": "a\ud83d"}), call_chunk(0, "a\ude00", "f", '"\ud83d"')])
    assert reply.text == "a\ufffd"
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
def test_arguments_are_told_while_they_come(
    chunks: list[ChatCompletionChunk], expected: list[tuple[int, str]]
) -> None:
    """Those of the tools asked for, by the number of their call; nothing before its tool is known."""
    assembler = ReplyAssembler(position=7, drafted={"draw"})
    deltas = coalesce(delta for chunk_ in chunks for delta in assembler.feed(chunk_))
    assert [(d.call, d.text) for d in deltas if isinstance(d, ArgumentsDelta)] == expected


PIECES = ["<thinking>", "</thinking>", "<thin", "word ", "<", "\ud83d", "\ude00", "é"]
CONTENT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
SEGMENTS = st.lists(
    st.tuples(st.sampled_from(["content", "reasoning", "call 0", "call 1"]), CONTENT), max_size=6
)


@given(SEGMENTS, st.data())
def test_cuts_do_not_matter(segments: list[tuple[str, str]], data: st.DataObject) -> None:
    """However text, reasoning and arguments are cut, the reply and the order of its deltas are the same."""
    whole = [segment_chunk(kind, content) for kind, content in segments]
    pieces = [
        segment_chunk(kind, piece)
        for kind, content in segments
        for piece in cut(content, data.draw(st.sets(st.integers(1, 30))))
    ]
    assert assemble(pieces) == assemble(whole)


def segment_chunk(kind: str, content: str) -> ChatCompletionChunk:
    """Return the chunk that carries a content in one of its places."""
    if kind.startswith("call"):
        return call_chunk(int(kind[-1]), None, "f", content)
    return chunk({kind: content})


LONG_ID = "x" * (MAX_TAG_LENGTH - len('<thinking id="">'))

TAGS = ["<thinking>", "</thinking>", '<thinking id="a">', "<thinking id='b' >", f'<thinking id="{LONG_ID}x">']
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
NO_TAGS = st.sampled_from(["a", " <", "b>", "<b>", "</i>", "<think>", "<thinkingcap "])


def split(*pieces: str) -> list[Delta]:
    """Feed the pieces and close."""
    splitter = ThinkingSplitter()
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)]
    return coalesce([*deltas, *splitter.close()])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no tags", [TextDelta("no tags")]),
        ("a<thinking>b</thinking>c", [TextDelta("a"), ThoughtDelta("b"), TextDelta("c")]),
        ('<thinking id="plan">b</thinking>c', [ThoughtDelta("b", "plan"), TextDelta("c")]),
        ("<thinking id = 'plan' >b</thinking>", [ThoughtDelta("b", "plan")]),
        ('<thinking\nid="">b</thinking>', [ThoughtDelta("b")]),
        ("<thinking></thinking>c", [TextDelta("c")]),
        (
            '<thinking id="1">a</thinking><thinking id="2">b</thinking>',
            [ThoughtDelta("a", "1"), ThoughtDelta("b", "2")],
        ),
        ("a<thinking>to the end", [TextDelta("a"), ThoughtDelta("to the end")]),
        ("<thinking>a</think", [ThoughtDelta("a</think")]),
        ("a</thinking>b", [TextDelta("a</thinking>b")]),
        ("<thinkingcap>on</thinkingcap>", [TextDelta("<thinkingcap>on</thinkingcap>")]),
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
            [ThoughtDelta("use <thinking> tags"), TextDelta("c</thinking>d")],
        ),
    ],
)
def test_tags_are_split_out_of_the_text(text: str, expected: list[Delta]) -> None:
    """What is well formed is a thought, whatever only looks like it is text, and tags do not nest."""
    assert split(text) == expected
    assert split(*text) == expected


@given(TAGGED, st.sets(st.integers(min_value=1, max_value=400)))
def test_cuts_of_tags_do_not_matter(text: str, places: set[int]) -> None:
    """However the text is cut, the thoughts and the text are those of the uncut one."""
    assert split(*cut(text, places)) == split(text)


@given(st.lists(NO_TAGS, max_size=8).map("".join))
def test_only_a_possible_tag_is_held_back(text: str) -> None:
    """Text in which no tag can begin passes at once."""
    splitter = ThinkingSplitter()
    deltas = splitter.feed(text + ".")
    assert coalesce(deltas) == [TextDelta(text + ".")]
    assert splitter.close() == []
