"""Inline <thinking> tags: what is a thought, and that the cuts of the stream do not matter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.model.reply import (
    MAX_TAG_LENGTH,
    Delta,
    TextDelta,
    ThinkingSplitter,
    ThoughtDelta,
    coalesce,
)
from tests.support.cutting import cut

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
PIECES = st.sampled_from([*TAGS, *FRAGMENTS])
TEXTS = st.lists(PIECES, max_size=12).map("".join)
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


@given(TEXTS, st.sets(st.integers(min_value=1, max_value=400)))
def test_cuts_do_not_matter(text: str, places: set[int]) -> None:
    """However the text is cut, the thoughts and the text are those of the uncut one."""
    assert split(*cut(text, places)) == split(text)


@given(st.lists(NO_TAGS, max_size=8).map("".join))
def test_only_a_possible_tag_is_held_back(text: str) -> None:
    """Text in which no tag can begin passes at once."""
    splitter = ThinkingSplitter()

    deltas = splitter.feed(text + ".")

    assert coalesce(deltas) == [TextDelta(text + ".")]
    assert splitter.close() == []
