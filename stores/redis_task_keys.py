"""How long the keys of a task live: as long as the task is open, and for a while after its end.

The keys of a client's task, and of the sub-agents that work for it, stand in one hash, with the seconds that
each lives after the end. `task_views.lua` lets them live on when the task is open, and expire when it ends.
"""

from datetime import timedelta

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.stores.leases import Lease
from everloop.workflows.contract.names import root_task_id, task_keys_key, tool_record_key, view_key

HOLD = """
local function hold(key, keys, view, seconds)
  redis.call('HSET', keys, key, seconds)
  if redis.call('HGET', view, 'held') == '1' then
    redis.call('PERSIST', key)
    redis.call('PERSIST', keys)
    return
  end
  redis.call('EXPIRE', key, seconds)
  if redis.call('TTL', keys) < tonumber(seconds) then
    redis.call('EXPIRE', keys, seconds)
  end
end
"""
"""A function for scripts: call it once the key is there, with what `hold_keys` names and the time to live."""

IS_LATE = """
local function is_late(record, order)
  local newest = order ~= '' and redis.call('HGET', record, 'order')
  return newest and newest > order
end
"""
"""A function for scripts: whether a later attempt has claimed the call; it takes what `late_key` and
`order_of` return. Where the record of a call was lost, nobody is late."""


class RedisTaskKeys:
    """Keeps a key as long as its task is open; that of a task which nobody knows, for its time to live."""

    def __init__(self, redis: Redis, ttl: timedelta) -> None:
        self.seconds = int(ttl.total_seconds())
        self._hold = redis.register_script(f"{HOLD} hold(KEYS[1], KEYS[2], KEYS[3], ARGV[1])")

    async def queue_hold(self, pipeline: Pipeline, task_id: str, key: str) -> None:
        """Let a transaction keep a key that it writes; it adds one reply."""
        await self._hold(keys=[key, *hold_keys(task_id)], args=[self.seconds], client=pipeline)


def hold_keys(task_id: str) -> list[str]:
    """Return the keys that scripts need for `HOLD`: those of the task, or of the one that it works for."""
    root = root_task_id(task_id)
    return [task_keys_key(root), view_key(root)]


def late_key(task_id: str, lease: Lease | None) -> str:
    """Return the key that scripts need for `IS_LATE`; without a lease any key of the task."""
    return tool_record_key(lease.task_id, lease.call_id) if lease else view_key(task_id)


def order_of(lease: Lease | None) -> str:
    """Return the order that scripts need for `IS_LATE`; empty: nobody is late."""
    return lease.order if lease else ""
