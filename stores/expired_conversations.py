"""Removes conversations that nobody has added to for their time to live."""

from datetime import timedelta
from typing import cast

from redis.asyncio import Redis

from everloop.stores.cleaned import Cleaned
from everloop.workflows.contract.names import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    conversation_summaries_key,
    conversation_tasks_key,
)

_BATCH = 500
"""Conversations that one step removes at most."""

_NOW = """
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])
"""
_COUNT = f"{_NOW} return redis.call('ZCOUNT', KEYS[1], '-inf', due)"
_LIST = f"{_NOW} return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', due, 'LIMIT', 0, ARGV[2])"
_REMOVE = f"""
-- KEYS: all conversations, then the keys of one. ARGV: time to live in milliseconds, the context.
{_NOW}
local at = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not at or tonumber(at) > due then
  return 0  -- somebody has added to it since, or removed it
end
redis.call('DEL', unpack(KEYS, 2))
return redis.call('ZREM', KEYS[1], ARGV[2])
"""


class ExpiredConversations:
    """Any number of processes may remove them at once, and each may die at any point.

    `ttl` counts from the last message, also for conversations that began when it was longer.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta) -> None:
        self._ttl = int(ttl.total_seconds() * 1000)
        self._count = redis.register_script(_COUNT)
        self._list = redis.register_script(_LIST)
        self._remove = redis.register_script(_REMOVE)

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Remove 500 conversations at most, and return how many were (or would be) removed.

        Raises:
            RedisError: Redis is away.
        """
        if dry_run:
            return Cleaned(int(await self._count(keys=[CONVERSATIONS_KEY], args=[self._ttl])))
        listed = await self._list(keys=[CONVERSATIONS_KEY], args=[self._ttl, _BATCH])
        contexts = cast("list[str]", listed)
        removed = sum([await self._remove_one(context) for context in contexts])
        return Cleaned(removed, "due" if len(contexts) == _BATCH else "")

    async def _remove_one(self, context: str) -> int:
        keys = [
            CONVERSATIONS_KEY,
            conversation_key(context),
            conversation_positions_key(context),
            conversation_summaries_key(context),
            conversation_tasks_key(context),
        ]
        return int(await self._remove(keys=keys, args=[self._ttl, context]))
