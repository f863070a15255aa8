"""Removes conversations that nobody has added to for their time to live."""

from datetime import timedelta
from typing import cast

from redis.asyncio import Redis

from everloop.runtime.redis import NOW
from everloop.stores.conversations.store import conversation_keys
from everloop.stores.keys import CONVERSATIONS_KEY
from everloop.stores.retention import Cleaned

_BATCH = 500
"""Conversations that one step removes at most."""

_DUE = f"{NOW} local due = now() - tonumber(ARGV[1])"
_COUNT = f"{_DUE} return redis.call('ZCOUNT', KEYS[1], '-inf', due)"
_LIST_DUE = f"{_DUE} return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', due, 'LIMIT', 0, ARGV[2])"
_REMOVE = f"""
-- KEYS: those of one conversation, positions second. ARGV: time to live in milliseconds.
-- Returns when one that is not due had its last message, or would have had it if it were not kept longer.
{_DUE}
local kept, life = unpack(redis.call('HMGET', KEYS[2], 'kept', 'life'))
local at = kept and now() + redis.call('PTTL', KEYS[2]) - kept * 1000 or 0
at = at + math.max((life or 0) * 1000 - ARGV[1], 0)
if at > due then
  return string.format('%.0f', at)
end
redis.call('DEL', unpack(KEYS))
return ''
"""
_UNLIST = f"""
-- KEYS: all conversations. ARGV: time to live in milliseconds, the context, when it had its last message.
{_DUE}
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], 'XX', 'GT', ARGV[3], ARGV[2])
elseif tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 'inf') <= due then
  redis.call('ZREM', KEYS[1], ARGV[2])  -- nobody has listed it anew since
end
"""


class ConversationCleanup:
    """Any number of processes may remove them at once, and each may die at any point.

    `ttl` counts from the last message, also for conversations that began when it was longer.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta) -> None:
        self._ttl = int(ttl.total_seconds() * 1000)
        self._count = redis.register_script(_COUNT)
        self._list = redis.register_script(_LIST_DUE)
        self._remove = redis.register_script(_REMOVE)
        self._unlist = redis.register_script(_UNLIST)

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Look at 500 conversations at most, and return how many were (or, at most, would be) removed.

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
        keys = conversation_keys(context)
        at = str(await self._remove(keys=keys, args=[self._ttl]))
        await self._unlist(keys=[CONVERSATIONS_KEY], args=[self._ttl, context, at])
        return int(not at)
