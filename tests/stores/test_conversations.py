"""Conversations of contexts: in order, once per task, apart from each other."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from stores.conversations import MAX_MESSAGES, Conversations
from stores.memory_conversations import MemoryConversations
from stores.redis_conversations import RedisConversations
from tests.stores.examples import new_id
from workflows.contract.messages import AssistantMessage, TextPart, UserMessage
from workflows.contract.names import conversation_key


@pytest_asyncio.fixture(params=["memory", "redis"], loop_scope="session")
async def conversations(request: pytest.FixtureRequest, redis: Redis) -> AsyncGenerator[Conversations]:
    yield MemoryConversations() if request.param == "memory" else RedisConversations(redis)


def said(text: str) -> UserMessage:
    return UserMessage(message_id=text, parts=(TextPart(text=text),))


async def test_messages_come_back_in_order(conversations: Conversations) -> None:
    """The newest ones, oldest first; both sides of the conversation are kept."""
    context = new_id()
    await conversations.append(context, "t1", [said("a"), AssistantMessage(text="b")])
    await conversations.append(context, "t2", [said("c")])

    assert await conversations.get_recent(context, 10) == [said("a"), AssistantMessage(text="b"), said("c")]
    assert await conversations.get_recent(context, 2) == [AssistantMessage(text="b"), said("c")]
    assert await conversations.get_recent(context, 0) == []
    assert await conversations.get_recent(new_id(), 10) == []


async def test_a_task_appends_once(conversations: Conversations) -> None:
    """An activity that runs again adds nothing; the same task id in another context is another task."""
    context, other = new_id(), new_id()
    for _ in range(3):
        await conversations.append(context, "t1", [said("a")])
    await conversations.append(other, "t1", [said("a")])

    assert await conversations.get_recent(context, 10) == [said("a")]
    assert await conversations.get_recent(other, 10) == [said("a")]


async def test_a_conversation_keeps_the_newest_messages(conversations: Conversations) -> None:
    """It does not grow without end."""
    context = new_id()
    await conversations.append(context, "t", [said(str(n)) for n in range(MAX_MESSAGES + 5)])

    kept = await conversations.get_recent(context, MAX_MESSAGES + 5)

    assert (len(kept), kept[0], kept[-1]) == (MAX_MESSAGES, said("5"), said(str(MAX_MESSAGES + 4)))


async def test_a_conversation_expires_after_its_last_message(redis: Redis) -> None:
    """Thirty days, from the last message on."""
    context = new_id()
    await RedisConversations(redis).append(context, "t", [said("a")])

    assert 0 < await redis.ttl(conversation_key(context)) <= 30 * 24 * 3600
