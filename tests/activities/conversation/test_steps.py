"""What is summed up next: in which order, in which blocks, on which level."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.conversation.recall import FAN_IN, MAX_BLOCK_CHARACTERS, SummaryStep, next_step
from everloop.stores.conversations import ConversationSummary
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from everloop.workflows.contract.tasks import MemorySpec

HIERARCHICAL = MemorySpec(strategy="hierarchical", max_messages=3)
SUMMARY = MemorySpec(strategy="summary", max_messages=3)


def said(text: str = "a") -> UserMessage:
    return UserMessage(message_id="m", parts=(TextPart(text=text),))


def summary(start: int, end: int, level: int = 0) -> ConversationSummary:
    return ConversationSummary(level=level, start=start, end=end, text=f"{start} to {end}")


def work(calls: int) -> list[ConversationMessage]:
    """Return a call of so many tools, and their results."""
    asked = tuple(ToolCall(id=str(n), name="t", arguments="{}") for n in range(calls))
    results = [ToolMessage(call_id=call.id, name="t", content="") for call in asked]
    return [AssistantMessage(tool_calls=asked), *results]


FIVE = [said(str(n)) for n in range(5)]
LEVEL = [summary(0, 3), summary(3, 6), summary(6, 9), summary(9, 12)]


def test_one_summary_takes_in_the_earlier_one() -> None:
    """Of all messages that are too old, however many the agent recalls."""
    first = next_step(SUMMARY, [], 2, FIVE)
    second = next_step(SUMMARY, [summary(2, 7)], 7, FIVE)
    assert first == SummaryStep(0, 2, 7, messages=tuple(FIVE))
    assert second == SummaryStep(0, 2, 12, earlier=(summary(2, 7),), messages=tuple(FIVE))


def test_one_summary_takes_in_summaries_of_another_strategy() -> None:
    """An agent may change its memory."""
    earlier = (summary(0, 12, level=1), summary(12, 15))
    assert next_step(SUMMARY, earlier, 15, FIVE) == SummaryStep(0, 0, 20, earlier, tuple(FIVE))


def test_blocks_become_summaries_of_the_first_level() -> None:
    """Each of about as many messages as the agent recalls, apart from earlier ones."""
    assert next_step(HIERARCHICAL, LEVEL[:3], 9, FIVE) == SummaryStep(0, 9, 12, messages=tuple(FIVE[:3]))


LEVELS: Sequence[tuple[Sequence[ConversationSummary], tuple[int, int, int] | None]] = [
    ([], None),
    (LEVEL[:3], None),
    (LEVEL, (1, 0, 12)),
    ([summary(0, 12, 1), *LEVEL[:3]], None),
    (
        [summary(0, 1, 1), summary(1, 2), summary(2, 3), summary(3, 4), summary(4, 5), summary(5, 6)],
        (1, 1, 5),
    ),
    ([summary(n, n + 1, 1) for n in range(4)], (2, 0, 4)),
    ([summary(0, 1), summary(1, 2, 1), *[summary(n, n + 1) for n in range(2, 5)]], None),
]


@pytest.mark.parametrize(("summaries", "expected"), LEVELS)
def test_four_summaries_in_a_row_become_one_of_the_next_level(
    summaries: Sequence[ConversationSummary], expected: tuple[int, int, int] | None
) -> None:
    """Before anything else; with less than four and no messages nothing is left to do."""
    step = next_step(HIERARCHICAL, summaries, 100, [])
    assert (step and (step.level, step.start, step.end)) == expected
    if step:
        assert next_step(HIERARCHICAL, summaries, 100, FIVE) == step
        assert (len(step.earlier), step.messages) == (FAN_IN, ())


BIG = said("x" * (MAX_BLOCK_CHARACTERS // 2))
BLOCKS: Sequence[tuple[Literal["summary", "hierarchical"], Sequence[ConversationMessage], int]] = [
    ("summary", FIVE, 5),
    ("summary", [BIG, BIG], 1),
    ("summary", [said("x" * MAX_BLOCK_CHARACTERS), said()], 1),
    ("summary", [said(), *work(2), BIG, BIG], 5),
    ("hierarchical", FIVE, 3),
    ("hierarchical", [said(), *work(1), said()], 3),
    ("hierarchical", [said(), *work(2), said()], 1),
    ("hierarchical", [*work(5), said()], 6),
    ("hierarchical", [*work(5)], 6),
]


@pytest.mark.parametrize(("strategy", "messages", "count"), BLOCKS)
def test_a_block_is_not_too_long_to_be_read(
    strategy: Literal["summary", "hierarchical"], messages: Sequence[ConversationMessage], count: int
) -> None:
    """Unless what belongs together is: no call is parted from its results."""
    memory = MemorySpec(strategy=strategy, max_messages=3)
    step = next_step(memory, [], 10, messages)
    assert step == SummaryStep(0, 10, 10 + count, messages=tuple(messages[:count]))


@given(
    strategy=st.sampled_from(["summary", "hierarchical"]),
    most=st.integers(1, 6),
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=30),
)
def test_all_messages_get_summed_up(
    strategy: Literal["summary", "hierarchical"], most: int, turns: Sequence[int]
) -> None:
    """Step by step, without a gap; few summaries are left, and no range parts a call from a result."""
    messages = [message for calls in turns for message in [said(), *work(calls)]]
    memory = MemorySpec(strategy=strategy, max_messages=most)
    kept, ends = list[ConversationSummary](), list[int]()
    while step := next_step(memory, kept, ends[-1] if ends else 0, messages[ends[-1] if ends else 0 :]):
        assert step.end > step.start
        ends += [step.end] if step.messages else []
        kept = [s for s in kept if s.end <= step.start]
        kept.append(summary(step.start, step.end, step.level))
    assert [(a.end, b.start) for a, b in pairwise(kept) if a.end != b.start] == []
    assert (kept[0].start, kept[-1].end) == (0, len(messages))
    assert all(not isinstance(messages[end], ToolMessage) for end in ends if end < len(messages))
    assert len(kept) == 1 or strategy == "hierarchical"
    for level in range(5):
        assert sum(s.level == level for s in kept) < FAN_IN
