"""Lists forget tasks whose views have expired; conversations go when their time is over."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from redis.asyncio import Redis

from everloop.stores.conversations import ConversationCleanup, Conversations
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    expiry_list_key,
    open_tasks_key,
    task_list_key,
    view_key,
)
from everloop.stores.retention import Cleaned
from everloop.stores.views.cleanup import ViewCleanup
from everloop.stores.views.store import TaskViews
from tests.stores.examples import new_id, said, submitted
from tests.support.conversations import count_kept

TTL = timedelta(days=30)


async def whole(clean: Callable[[str], Awaitable[Cleaned]]) -> int:
    """Take all steps, and return how many things they removed."""
    cleaned = await clean("")
    removed = cleaned.removed
    while cleaned.cursor:
        cleaned = await clean(cleaned.cursor)
        removed += cleaned.removed
    return removed


async def test_lists_forget_tasks_whose_views_have_expired(own_redis: Redis) -> None:
    """All lists of the owner, with those of open tasks; tasks with a view stay in theirs."""
    views, owner = TaskViews(own_redis), new_id()
    expired, kept = submitted(owner=owner), submitted(owner=owner)
    for view in (expired, kept):
        await views.create(view)
    agent, context = kept.agent_id, expired.context_id
    await own_redis.delete(view_key(expired.task_id))
    entry = f"{task_list_key(owner, agent, context)} {expired.task_id}"
    await own_redis.zadd(expiry_list_key(owner, agent), {entry: 1})
    await own_redis.zadd(open_tasks_key(owner), {expired.task_id: 1})  # as if it had been announced alone
    cleaner = ViewCleanup(own_redis)

    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=True)) == 1
    assert await own_redis.zcard(task_list_key(owner, agent)) == 2
    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=False)) == 1
    assert await whole(lambda cursor: cleaner.clean(cursor, dry_run=False)) == 0
    for key in (
        task_list_key(owner, agent),
        task_list_key(owner, agent, state="submitted"),
        open_tasks_key(owner),
    ):
        assert await own_redis.zrange(key, 0, -1) == [kept.task_id]
    assert await own_redis.exists(task_list_key(owner, agent, context)) == 0
    assert await own_redis.exists(expiry_list_key(owner, agent)) == 0


async def test_conversations_go_when_their_time_is_over(redis: Redis) -> None:
    """Counted from the last message; one that was added to since it was listed stays."""
    conversations, old, young = Conversations(redis), new_id(), new_id()
    for context in (old, young):
        await conversations.append(context, "task", [said("a")])
    late = float(await redis.zscore(CONVERSATIONS_KEY, old) or 0) - TTL.total_seconds() * 1000
    await redis.zadd(CONVERSATIONS_KEY, {old: late, young: late})
    await redis.hset(conversation_positions_key(old), "at", str(late))
    cleaner = ConversationCleanup(redis, ttl=TTL)

    assert (await cleaner.clean(dry_run=True)).removed == 2  # at most: it looks at the list alone
    assert await count_kept(conversations, old) == 1
    assert await cleaner.clean(dry_run=False) == (1, "")
    assert await cleaner.clean(dry_run=False) == (0, "")
    assert await redis.exists(conversation_key(old)) == 0
    assert await redis.zscore(CONVERSATIONS_KEY, old) is None
    assert float(await redis.zscore(CONVERSATIONS_KEY, young) or 0) > late
    assert (await cleaner.clean(dry_run=True)).removed == 0
    assert await count_kept(conversations, young) == 1


async def test_a_conversation_that_goes_on_is_kept(redis: Redis) -> None:
    """A message makes its time begin anew."""
    conversations, context = Conversations(redis), new_id()
    await conversations.append(context, "t1", [said("a")])
    await redis.zadd(CONVERSATIONS_KEY, {context: 1})
    await conversations.append(context, "t2", [said("b")])
    await ConversationCleanup(redis, ttl=TTL).clean(dry_run=False)
    assert await count_kept(conversations, context) == 2
