"""Conversations of contexts: in order, once per task, separate, with matching summaries."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.conversations.conversation_store import (
    FORGOTTEN,
    MAX_MESSAGES,
    MAX_TASKS,
    Conversations,
    ConversationSummary,
)
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    conversation_summaries_key,
)
from everloop.stores.lifetimes import CONVERSATION_TTL
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.stores.examples import new_id
from tests.support.stores import count_kept, kept_messages


@pytest.fixture(params=["redis", pytest.param("encrypted", marks=pytest.mark.slow)])
def conversations(request: pytest.FixtureRequest) -> Conversations:
    return Conversations(request.getfixturevalue(str(request.param)), count_tokens=letters)


def said(text: str) -> UserMessage:
    return UserMessage(message_id=text, parts=(TextPart(text=text),))


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(id=i, name="search", arguments="{}") for i in ids))


def result(id_: str) -> ToolMessage:
    return ToolMessage(call_id=id_, name="search", content=f"found {id_}", artifacts=("a",))


def letters(message: ConversationMessage) -> int:
    """Count one token for each letter of a user's message, and one for each other message."""
    return len(message.message_id) if isinstance(message, UserMessage) else 1


ANSWER = AssistantMessage(text="b")
WORK = (said("a"), calls("1", "2"), result("1"), result("2"), calls("1"), result("1"), ANSWER)
"""A turn in which the model gave two calls the same id."""


async def many(conversations: Conversations) -> str:
    """Return a context with ten user messages, whose texts are their positions."""
    context = new_id()
    await conversations.append(context, "t", [said(str(n)) for n in range(10)])
    return context


async def test_a_conversation_goes_on_where_redis_has_forgotten_its_scripts(own_redis: Redis) -> None:
    """A conversation is read and continued in one trip although Redis has lost its scripts."""
    conversations, context = Conversations(own_redis), new_id()
    for number in range(2):
        await own_redis.script_flush()
        await conversations.append(context, str(number), [said(str(number))])
    assert await conversations.get_range(context, 0, 9) == [said("0"), said("1")]
    assert await own_redis.zscore(CONVERSATIONS_KEY, context) is not None


async def test_a_task_appends_once(conversations: Conversations) -> None:
    """A task appends once; the same task id in another context is another task."""
    context, other = new_id(), new_id()
    for _ in range(3):
        await conversations.append(context, "t1", [said("a")])
    await conversations.append(other, "t1", [said("a")])

    assert await kept_messages(conversations, context) == [said("a")]
    assert await kept_messages(conversations, other) == [said("a")]


async def test_tasks_that_end_at_once_both_land(conversations: Conversations) -> None:
    """Messages of tasks that end at the same time stay together."""
    context = new_id()
    tasks = [[said(f"{task}{n}") for n in range(20)] for task in "abcde"]
    appends = (conversations.append(context, said[0].message_id, said) for said in tasks)
    await asyncio.gather(*appends)

    kept = await kept_messages(conversations, context)

    found = [kept[start : start + 20] for start in range(0, 100, 20)]
    assert len(kept) == 100
    assert all(said in found for said in tasks)


RECENT: Sequence[tuple[int, int | None, Sequence[ConversationMessage]]] = [
    (0, None, []),
    (1, None, [said("xyz")]),
    (8, None, [said("xyz"), ANSWER]),
    (9, None, [*WORK, said("xyz"), ANSWER]),
    (9, 10, [said("xyz"), ANSWER]),
    (9, 11, [*WORK, said("xyz"), ANSWER]),
    (9, 3, [said("xyz")]),
]


@pytest.mark.parametrize(("max_messages", "max_tokens", "expected"), RECENT)
async def test_recent_messages_are_the_newest_turns_that_fit(
    conversations: Conversations,
    max_messages: int,
    max_tokens: int | None,
    expected: Sequence[ConversationMessage],
) -> None:
    """Recent messages are the newest complete turns within both limits, and begin with the user."""
    context = new_id()
    await conversations.append(context, "t1", WORK)
    await conversations.append(context, "t2", [said("xyz"), ANSWER])

    assert await conversations.get_recent(context, max_messages, max_tokens) == [*expected]


ENDS: Sequence[tuple[int, Sequence[ConversationMessage]]] = [
    (1, WORK[:1]),
    (2, [WORK[0], *WORK[6:]]),
    (4, [WORK[0], *WORK[4:]]),
    (7, WORK),
]


@pytest.mark.parametrize(("max_messages", "expected"), ENDS)
async def test_of_a_turn_that_is_too_long_the_beginning_and_the_end_are_recent(
    conversations: Conversations, max_messages: int, expected: Sequence[ConversationMessage]
) -> None:
    """A turn beyond the limit is returned with the user's request and its newest messages.

    No result comes without its call.
    """
    context = new_id()
    await conversations.append(context, "t", WORK)

    assert await conversations.get_recent(context, max_messages) == [*expected]


async def test_ranges_go_by_positions_since_the_beginning(conversations: Conversations) -> None:
    """Ranges count from the first message, also after the oldest ones were evicted."""
    context = await many(conversations)
    before = await conversations.get_range(context, 3, 5)
    outside = [await conversations.get_range(context, *span) for span in ((5, 5), (5, 3), (10, 12))]
    await conversations.append(context, "more", [said(str(n)) for n in range(10, MAX_MESSAGES + 4)])

    assert before == [said("3"), said("4")]
    assert outside == [[], [], []]
    assert await conversations.get_span(context) == range(4, MAX_MESSAGES + 4)
    assert await conversations.get_range(context, 3, 6) == [said("4"), said("5")]
    assert await conversations.get_range(context, 0, 4) == []
    assert await conversations.get_range(context, MAX_MESSAGES + 3, MAX_MESSAGES + 9) == [
        said(str(MAX_MESSAGES + 3))
    ]


def summary(start: int, end: int, text: str = "", level: int = 0) -> ConversationSummary:
    return ConversationSummary(level=level, start=start, end=end, text=text or f"{start} to {end}")


KEPT = (summary(0, 3), summary(3, 6))
SUMMARIES: Sequence[tuple[str, ConversationSummary, Sequence[ConversationSummary]]] = [
    ("after a gap", summary(8, 10), [*KEPT, summary(8, 10)]),
    ("again", summary(3, 6, "other words"), KEPT),
    ("the same range on another level", summary(3, 6, level=1), KEPT),
    ("covered already", summary(4, 6), KEPT),
    ("overlapping and covering", summary(1, 8), KEPT),
    ("covering both", summary(0, 6, level=1), [summary(0, 6, level=1)]),
    ("of messages that are not there", summary(6, 11), KEPT),
]


@pytest.mark.parametrize(("new", "expected"), [c[1:] for c in SUMMARIES], ids=[c[0] for c in SUMMARIES])
async def test_summaries_are_kept_by_their_ranges(
    conversations: Conversations, new: ConversationSummary, expected: Sequence[ConversationSummary]
) -> None:
    """Summaries never overlap: a wider range replaces others, and any other overlap is refused as late."""
    context = await many(conversations)
    for kept in reversed(KEPT):
        await conversations.compact(context, kept)

    for _ in range(2):
        await conversations.compact(context, new)

    assert await conversations.get_summaries(context) == [*expected]
    assert await count_kept(conversations, context) == 10


async def test_a_cleared_conversation_is_forgotten(conversations: Conversations) -> None:
    """A cleared conversation is deleted with its summaries, also one in progress; no retry restores it."""
    context, other = await many(conversations), await many(conversations)
    await conversations.compact(context, summary(0, 3))
    for _ in range(2):
        await conversations.clear(context)
    await conversations.compact(context, summary(3, 6))
    await conversations.append(context, "t", [said("again")])

    assert await kept_messages(conversations, context) == []
    assert await conversations.get_recent(context, 10) == []
    assert await conversations.get_summaries(context) == []
    assert await count_kept(conversations, other) == 10

    await conversations.append(context, "next", [said("a"), said("b")])
    await conversations.compact(context, summary(9, 11))
    await conversations.compact(context, summary(10, 11))

    assert await conversations.get_range(context, 10, 11) == [said("a")]
    assert await conversations.get_summaries(context) == [summary(10, 11)]


async def test_no_summary_tells_of_a_task_that_is_forgotten(conversations: Conversations) -> None:
    """Summaries of a deleted task are deleted, also one in progress; later ones of other tasks are stored."""
    context = new_id()
    for task_id in ("secret", "other"):
        await conversations.append(context, task_id, [said(task_id)])
    before = await conversations.times_forgotten(context)
    await conversations.forget_task(context, "secret")
    await conversations.compact(context, summary(0, 2), before)
    late = await conversations.get_summaries(context)
    await conversations.compact(context, summary(0, 2), await conversations.times_forgotten(context))
    await conversations.forget_task(context, "secret")

    assert late == []
    assert await conversations.get_summaries(context) == [summary(0, 2)]


async def test_a_task_is_forgotten_whose_messages_made_room(conversations: Conversations) -> None:
    """Deleting a task whose messages were evicted deletes the summary that covers them."""
    context = new_id()
    await conversations.append(context, "secret", [said("secret")])
    await conversations.compact(context, summary(0, 1))
    await conversations.append(context, "other", [said("other")] * MAX_MESSAGES)
    await conversations.forget_task(context, "secret")

    assert await conversations.get_summaries(context) == []


async def test_long_messages_are_kept_compressed(redis: Redis) -> None:
    context, long = new_id(), "What is long says much twice: zażółć gęślą jaźń. " * 50
    talk = (said(long), AssistantMessage(text=long), said("no"), AssistantMessage(text="z"))
    conversations = Conversations(redis)
    await conversations.append(context, "task", talk)
    await conversations.compact(context, ConversationSummary(start=0, end=2, text=long))
    assert tuple(await conversations.get_range(context, 0, 4)) == talk
    assert [summary.text for summary in await conversations.get_summaries(context)] == [long]
    kept = await redis.lrange(conversation_key(context), 0, -1)
    kept += await redis.hvals(conversation_summaries_key(context))
    assert [len(entry) < len(long) / 5 for entry in kept] == [True] * 5
    assert {entry[0] for entry in kept} == {"z", "{"}


async def test_a_conversation_expires_after_its_last_message(redis: Redis) -> None:
    """All keys of a conversation expire seven days after its last message, none earlier."""
    context = new_id()
    await Conversations(redis, ttl=timedelta(seconds=100)).append(context, "t1", [said("a")])
    conversations = Conversations(redis)
    await conversations.compact(context, summary(0, 1))
    keys = [
        conversation_key(context),
        conversation_positions_key(context),
        conversation_summaries_key(context),
    ]
    short = [await redis.ttl(key) for key in keys]
    await conversations.append(context, "t2", [said(str(n)) for n in range(MAX_MESSAGES)])

    assert all(0 < ttl <= 100 for ttl in short)
    week = 7 * 24 * 3600
    for key in keys:
        assert week - 60 < await redis.ttl(key) <= week


async def test_the_messages_of_a_task_can_be_removed(conversations: Conversations) -> None:
    """The messages of a task can be deleted.

    Those of others keep their positions; summaries that cover deleted ones are deleted. A task without
    messages removes none of the next one's.
    """
    context = new_id()
    for number, task in enumerate(("a", "b", "c")):
        await conversations.append(context, f"nothing {task}", [])
        await conversations.append(context, task, [said(f"{task}{number}"), ANSWER])
    for start in (0, 2, 4):
        await conversations.compact(context, ConversationSummary(start=start, end=start + 2, text=f"{start}"))

    assert await conversations.messages_of(context, "nothing b") == []
    assert await conversations.forget_task(context, "nothing b") == 0
    assert await conversations.messages_of(context, "b") == [said("b1"), ANSWER]
    assert (await conversations.forget_task(context, "b"), await conversations.forget_task(context, "b")) == (
        2,
        0,
    )

    assert await conversations.get_range(context, 0, 6) == [
        said("a0"),
        ANSWER,
        FORGOTTEN,
        FORGOTTEN,
        said("c2"),
        ANSWER,
    ]
    assert await conversations.get_recent(context, 10) == [said("a0"), ANSWER, said("c2"), ANSWER]
    assert [summary.start for summary in await conversations.get_summaries(context)] == [0, 4]
    assert await conversations.messages_of(context, "b") == []
    await conversations.append(context, "b", [said("again")])
    assert (await conversations.get_span(context)).stop == 6


async def test_a_conversation_can_be_kept_longer_after_its_last_message(redis: Redis) -> None:
    """A retention extends a conversation from its last message on, and never shortens it."""
    context, conversations = new_id(), Conversations(redis)
    keys = [conversation_key(context), conversation_positions_key(context)]
    await conversations.append(context, "t1", [said("a")])
    hour, month = timedelta(hours=1), timedelta(days=30)
    for key in keys:  # its last message came an hour ago
        await redis.pexpire(key, CONVERSATION_TTL - hour)
    for life in (month, timedelta(days=1)):
        await conversations.prolong(context, life)
    prolonged = [await redis.ttl(key) for key in keys]
    await conversations.prolong(context, month)
    await conversations.append(context, "t2", [said("b")])

    assert prolonged == [pytest.approx((month - hour).total_seconds(), abs=60)] * 2
    assert [await redis.ttl(key) for key in keys] == [pytest.approx(month.total_seconds(), abs=60)] * 2


async def test_of_many_tasks_the_newest_are_known_to_have_appended(redis: Redis) -> None:
    """The newest 10,000 tasks append once; an older one may append again."""
    context, conversations = new_id(), Conversations(redis)
    positions_key = conversation_positions_key(context)
    await conversations.append(context, "begun", [said("a")])
    older = {f"task:{n}": n for n in range(1, MAX_TASKS * 11 // 10)}
    await redis.hset(positions_key, mapping={**older, "start": MAX_TASKS * 2})
    for task_id in ("new", "newest", "new", "begun"):
        await conversations.append(context, task_id, [said(task_id)])
    known = cast("list[str]", await redis.hkeys(positions_key))
    tasks = {name for name in known if name.startswith("task:")}

    assert len(tasks) == MAX_TASKS + 2
    assert f"task:{MAX_TASKS // 10}" not in tasks
    assert f"task:{MAX_TASKS // 10 + 1}" in tasks
    assert await conversations.get_recent(context, 3) == [said("new"), said("newest"), said("begun")]
