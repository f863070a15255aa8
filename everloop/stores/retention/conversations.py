"""Removes conversations whose time to live has ended since their last message."""

import time
from datetime import timedelta
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.redis import transact
from everloop.stores.conversations.conversation_store import conversation_keys
from everloop.stores.keys import CONVERSATIONS_KEY, conversation_positions_key
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.scripts import remove_older

_BATCH = 500
"""Limit of the conversations that one step removes."""


class ExpiredConversations:
    """Removes expired conversations. Processes may do so concurrently, and each may die at any point.

    `ttl` counts from the last message, also for conversations that were started with a longer one.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta) -> None:
        self._redis = redis
        self._ttl = ttl.total_seconds()

    async def clean(self, _: str = "", *, dry_run: bool) -> Cleaned:
        """Check at most 500 conversations, and return how many were (or, at most, would be) removed.

        Raises:
            RedisError: Redis does not answer.
        """
        due = int((time.time() - self._ttl) * 1000)
        if dry_run:
            return Cleaned(int(await self._redis.zcount(CONVERSATIONS_KEY, "-inf", due)))
        listed = await self._redis.zrangebyscore(CONVERSATIONS_KEY, "-inf", due, 0, _BATCH)
        contexts = cast("list[str]", listed)
        removed = sum([await self._remove(context, due) for context in contexts])
        return Cleaned(removed, "due" if len(contexts) == _BATCH else "")

    async def _remove(self, context: str, due: int) -> int:
        """Remove a conversation if it is due, or list the time when it will be."""
        positions = conversation_positions_key(context)

        async def remove(pipeline: Pipeline) -> int:
            """Return the time of its last message, which a longer retention moves."""
            kept, life = cast("list[str | None]", await pipeline.hmget(positions, "kept", "life"))
            left = await pipeline.pttl(positions)
            at = int(time.time() * 1000) + left - int(kept) * 1000 if kept else 0
            at += int(max(int(life or 0) - self._ttl, 0) * 1000)
            pipeline.multi()
            if at <= due:
                pipeline.delete(*conversation_keys(context))
            return at

        at = await transact(self._redis, remove, positions)
        if is_due := at <= due:
            await remove_older(self._redis, CONVERSATIONS_KEY, context, due)
        else:
            await self._redis.zadd(CONVERSATIONS_KEY, {context: at}, xx=True, gt=True)
        return int(is_due)
