"""Limits of an answer's size, for any cuts of it."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from everloop.runtime.outbound.bounds import AnswerBound, AnswerTooLargeError
from everloop.runtime.outbound.response_bounds import check_encoding

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a,[{"\\}]é', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('b,"\\', max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def marks(value: JsonValue) -> int:
    """Return the number of commas and opening brackets in a value's JSON, outside of its texts."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return 0
    return 1 + max(0, len(inner) - 1) + sum(map(marks, inner))


def read(content: bytes, cuts: list[int], bound: AnswerBound) -> None:
    places = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    for start, end in pairwise(places):
        bound.feed(content[start:end])


@given(_VALUES, st.lists(st.integers(0, 500), max_size=6), st.booleans())
@example('["[', [3, 3], False)  # an empty piece after a backslash
def test_values_are_counted_outside_of_texts(value: JsonValue, cuts: list[int], ascii_only: bool) -> None:  # noqa: FBT001 -- hypothesis gives it by place
    """For any cuts of the answer: a limit of one fewer is exceeded, the exact number is not."""
    content, there = json.dumps(value, ensure_ascii=ascii_only).encode(), marks(value)

    read(content, cuts, AnswerBound(values=there))
    if there:
        with pytest.raises(AnswerTooLargeError, match="values of JSON"):
            read(content, cuts, AnswerBound(values=there - 1))


@given(st.lists(st.integers(0, 500), max_size=6), st.sampled_from([b"\n\n", b"\r\r", b"\r\n\r\n"]))
def test_each_event_of_a_stream_counts_for_itself(cuts: list[int], end: bytes) -> None:
    """For any number of them, and any line ends; an event of many lines is one."""
    content = (b"data: [1,2]" + end) * 5
    cuts = [*cuts, *range(0, 200, 5)]

    read(content, cuts, AnswerBound(40, values=2, events=True))
    with pytest.raises(AnswerTooLargeError):
        read(b"data: x\n" * 20 + end, cuts, AnswerBound(40, events=True))
    with pytest.raises(AnswerTooLargeError):
        read(content, cuts, AnswerBound(40, values=1, events=True))


def test_all_of_a_stream_may_have_a_bound_too() -> None:
    """For a stream that belongs to one reply."""
    bound = AnswerBound(events=True, total=30)
    bound.feed(b"data: x\n\n" * 3)

    with pytest.raises(AnswerTooLargeError):
        bound.feed(b"data: x\n\n")


def test_an_answer_is_read_up_to_its_bound() -> None:
    """To the byte."""
    bound = AnswerBound(10)
    bound.feed(b"12345")
    bound.feed(b"67890")

    with pytest.raises(AnswerTooLargeError, match="more than 10 bytes"):
        bound.feed(b"1")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip", "x"])
def test_what_is_compressed_is_refused(encoding: str) -> None:
    """The request was for an uncompressed one."""
    with pytest.raises(AnswerTooLargeError, match="compressed"):
        check_encoding({"content-encoding": encoding})


@pytest.mark.parametrize("headers", [{}, {"content-encoding": ""}, {"content-encoding": " Identity "}])
def test_what_is_not_compressed_is_read(headers: dict[str, str]) -> None:
    """With the header or without."""
    check_encoding(headers)
