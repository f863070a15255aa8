"""Expiry: lists lose tasks with expired views, and conversations end with their retention."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

from redis.asyncio import Redis

from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    owner_tasks_key,
)
from everloop.stores.log.log_store import TaskViews
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.retention.conversations import ExpiredConversations
from everloop.stores.retention.views import ExpiredViews
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import new_id, said, status, submitted
from tests.support.many_tasks import expire_task
from tests.support.stores import count_kept

TTL = timedelta(days=30)


async def whole(clean: Callable[[str], Awaitable[Cleaned]]) -> int:
    """Take all steps, and return the number of removals."""
    cleaned = await clean("")
    removed = cleaned.removed
    while cleaned.cursor:
        cleaned = await clean(cleaned.cursor)
        removed += cleaned.removed
    return removed


async def test_lists_forget_tasks_whose_views_have_expired(own_redis: Redis) -> None:
    """Tasks with expired views leave all lists of the owner and the open tasks; others stay."""
    views, owner = TaskViews(own_redis), new_id()
    expired, kept = submitted(owner=owner), submitted(owner=owner)
    for view in (expired, kept):
        await views.create(view)
    await views.publish(expired.task_id, "run", [status(1, TaskState.COMPLETED)])
    await expire_task(own_redis, expired)
    cleaner = ExpiredViews(own_redis)
    listed = await own_redis.zcard(owner_tasks_key(owner))

    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=True)) == 1
    assert await own_redis.zcard(owner_tasks_key(owner)) == listed
    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=False)) == 1
    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=False)) == 0
    rows = cast("list[str]", await own_redis.zrange(owner_tasks_key(owner), 0, -1))
    assert len(rows) * 2 == listed
    assert all(kept.task_id in row for row in rows)


async def test_conversations_go_when_their_time_is_over(redis: Redis) -> None:
    """Conversations expire by their last message; one with a message since its listing stays."""
    conversations, old, young = Conversations(redis), new_id(), new_id()
    for context in (old, young):
        await conversations.append(context, "task", [said("a")])
    late = float(await redis.zscore(CONVERSATIONS_KEY, old) or 0) - TTL.total_seconds() * 1000
    await redis.zadd(CONVERSATIONS_KEY, {old: late, young: late})
    await redis.hincrby(conversation_positions_key(old), "kept", int(TTL.total_seconds()))
    cleaner = ExpiredConversations(redis, ttl=TTL)

    assert (await cleaner.clean(dry_run=True)).removed == 2  # at most: it reads the list alone
    assert await count_kept(conversations, old) == 1
    assert await cleaner.clean(dry_run=False) == (1, "")
    assert await cleaner.clean(dry_run=False) == (0, "")
    assert await redis.exists(conversation_key(old)) == 0
    assert await redis.zscore(CONVERSATIONS_KEY, old) is None
    assert float(await redis.zscore(CONVERSATIONS_KEY, young) or 0) > late
    assert (await cleaner.clean(dry_run=True)).removed == 0
    assert await count_kept(conversations, young) == 1
