"""Takes tasks whose views have expired out of the lists of their owners, agents, contexts and states."""

from typing import cast

from redis.asyncio import Redis

from everloop.runtime.redis import NOW
from everloop.stores.keys import OWNER_KEYS, agent_list_key, is_open_tasks_key, view_key
from everloop.stores.retention import Cleaned
from everloop.stores.views.lists import INDEX_SCRIPT

_SCANNED = 1000
"""Keys that one call to Redis looks at."""

_SCANS = 50
"""Calls of that kind that one step makes."""

_BATCH = 500
"""Tasks that one call takes out of the lists: Redis does nothing else meanwhile."""

_START = "0"

_VIEW_PREFIX, _VIEW_SUFFIX = view_key("*").split("*")

_REMOVE = f"""
{INDEX_SCRIPT}
-- KEYS: expiry list, agent's list. ARGV: key of any view before and after its task id, how many at most.
local function view_key(task_id)
  return ARGV[1] .. task_id .. ARGV[2]
end
return remove_expired(KEYS[2], KEYS[1], ARGV[3], view_key)
"""

_COUNT_DUE = f"{NOW} return redis.call('ZCOUNT', KEYS[1], '-inf', now())"
_REMOVE_DUE = f"{NOW} return redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now())"


class ViewCleanup:
    """Redis removes the views themselves. Any number of processes may do this at once, and each may die."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._remove = redis.register_script(_REMOVE)
        self._count_due = redis.register_script(_COUNT_DUE)
        self._remove_due = redis.register_script(_REMOVE_DUE)

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Look through 50,000 keys from a cursor on; return how many tasks were (or would be) taken out.

        Raises:
            RedisError: Redis is away.
        """
        removed = 0
        for _ in range(_SCANS):
            cursor, keys = await self._scan(cursor)
            for key in keys:
                removed += await self._count(key) if dry_run else await self._clean_list(key)
            if not cursor:
                break
        return Cleaned(removed, cursor)

    async def _scan(self, cursor: str) -> tuple[str, list[str]]:
        scan = self._redis.scan(int(cursor or _START), OWNER_KEYS, _SCANNED, _type="zset")
        following, keys = cast("tuple[int, list[str]]", await scan)
        return str(following) if following else "", keys

    async def _count(self, key: str) -> int:
        return int(await self._count_due(keys=[key])) if agent_list_key(key) else 0

    async def _clean_list(self, key: str) -> int:
        if is_open_tasks_key(key):
            await self._remove_due(keys=[key])
        if not (agent_list := agent_list_key(key)):
            return 0
        removed, batch = 0, _BATCH
        while batch == _BATCH:
            arguments = [_VIEW_PREFIX, _VIEW_SUFFIX, _BATCH]
            batch = int(await self._remove(keys=[key, agent_list], args=arguments))
            removed += batch
        return removed
