"""Recent messages of any conversation fit, begin with the user, and part no call from its result."""

from collections.abc import Sequence
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from everloop.runtime.redis import connect_redis
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.conversations.memory_selection import safe_ends
from everloop.stores.token_counts import estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.stores.examples import new_id

REPLIES = st.lists(st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3, unique=True), max_size=6)
"""The ids of each reply's calls, which other replies have too."""

TURNS = st.lists(st.tuples(REPLIES, st.integers(0, 200), st.booleans()), max_size=5)
"""Replies, lengths of texts, and whether the user writes while tools run."""


def conversation(turns: Sequence[tuple[list[list[str]], int, bool]]) -> list[ConversationMessage]:
    """Return the messages; a call and its result have the same number, which is unique."""
    numbers, messages = count(), list[ConversationMessage]()
    for replies, size, interrupts in turns:
        messages.append(said("x" * size))
        for ids in replies:
            calls = [ToolCall(id=id_, name="t", arguments=str(next(numbers))) for id_ in ids]
            messages.append(AssistantMessage(text="y" * size, tool_calls=tuple(calls)))
            messages += [said("wait")] if interrupts else []
            messages += [ToolMessage(call_id=c.id, name="t", content=c.arguments) for c in reversed(calls)]
    return messages


def said(text: str) -> UserMessage:
    return UserMessage(message_id="m", parts=(TextPart(text=text),))


def assert_whole(messages: Sequence[ConversationMessage]) -> None:
    """Check that each call has its result, and each result its call."""
    asked = [c.arguments for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    found = [m.content for m in messages if isinstance(m, ToolMessage)]
    assert sorted(asked) == sorted(found)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS, most=st.integers(0, 20), tokens=st.none() | st.integers(0, 500))
async def test_recent_messages_are_whole(
    redis_url: str, turns: Sequence[tuple[list[list[str]], int, bool]], most: int, tokens: int | None
) -> None:
    """Some messages are returned if the last user message fits, and all if all fit."""
    messages, context = conversation(turns), new_id()
    async with connect_redis(redis_url) as redis:
        await Conversations(redis).append(context, "t", messages)
        recent = await Conversations(redis).get_recent(context, most, tokens)

    assert_whole(recent)
    assert len(recent) <= most
    assert tokens is None or sum(map(estimate_tokens, recent)) <= tokens
    assert all(isinstance(message, UserMessage) for message in recent[:1])
    if tokens is None:
        assert recent or not most or not messages
        assert recent == messages or most < len(messages)


@given(turns=TURNS)
def test_no_safe_end_parts_a_call_from_its_result(turns: Sequence[tuple[list[list[str]], int, bool]]) -> None:
    """A safe end parts no call from its result, even within a reply.

    A user message may follow unless tools run.
    """
    messages = conversation(turns)

    ends = safe_ends(messages)

    assert ends == sorted(ends)
    assert ends[-1] == len(messages)
    for end in ends:
        assert_whole(messages[:end])
        assert_whole(messages[end:])
    if not any(interrupts for _, _, interrupts in turns):
        assert {n for n, m in enumerate(messages) if isinstance(m, UserMessage)} <= set(ends)
