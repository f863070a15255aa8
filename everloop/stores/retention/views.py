"""Removes tasks with expired views, and empty contexts, from the lists of their owners."""

from redis.asyncio import Redis

from everloop.runtime.redis import scan_page
from everloop.stores.keys import OWNER_LISTS_KEYS, owner_contexts_key, owner_of_list_key
from everloop.stores.lifetimes import TASK_TTL
from everloop.stores.log.contexts import Contexts
from everloop.stores.log.lists import TaskLists
from everloop.stores.retention.cleaned import Cleaned

_SCANNED = 1000
"""Limit of the keys that one call to Redis scans."""

_SCANS = 50
"""Limit of these calls in one step."""


class ExpiredViews:
    """Redis removes the views themselves. Processes may run this concurrently, and each may die."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._lists = TaskLists(redis, int(TASK_TTL.total_seconds()), TASK_TTL, Contexts(redis))
        self._contexts = Contexts(redis)

    async def clean(self, cursor: str, *, dry_run: bool) -> Cleaned:
        """Scan 50,000 keys from a cursor on; return how many tasks were (or would be) removed from lists.

        Raises:
            RedisError: Redis does not answer.
        """
        removed = 0
        for _ in range(_SCANS):
            cursor, keys = await scan_page(self._redis, cursor, OWNER_LISTS_KEYS, _SCANNED, "zset")
            for key in keys:
                owner = owner_of_list_key(key)
                if key == owner_contexts_key(owner):
                    await self._clean_contexts(owner, dry_run=dry_run)
                else:
                    removed += await self._clean_tasks(owner, dry_run=dry_run)
            if not cursor:
                break
        return Cleaned(removed, cursor)

    async def _clean_contexts(self, owner: str, *, dry_run: bool) -> None:
        if not dry_run:
            await self._contexts.prune(owner)

    async def _clean_tasks(self, owner: str, *, dry_run: bool) -> int:
        if dry_run:
            return await self._lists.count_expired(owner)
        removed = 0
        while expired := await self._lists.expired(owner):
            removed += await self._lists.drop_expired(owner, expired)
        return removed
