"""Removes all that Redis keeps of tasks."""

from collections.abc import Sequence
from typing import cast

from redis.asyncio import Redis

from everloop.stores.keys import (
    head_key,
    log_key,
    outcomes_key,
    push_configs_key,
    records_key,
    registry_key,
    route_key,
    secrets_key,
    snapshot_key,
)

_REMOVE_KEYS = """
-- KEYS: registry of a client's task, and what it has whatever the registry says. Returns how many there were.
local removed = 0
redis.call('HDEL', KEYS[1], 'open')  -- which names no key
for _, keys in ipairs({redis.call('HKEYS', KEYS[1]), KEYS}) do
  for _, key in ipairs(keys) do
    removed = removed + redis.call('UNLINK', key)
  end
end
return removed
"""

_KEYS = (
    registry_key,
    head_key,
    log_key,
    snapshot_key,
    route_key,
    records_key,
    outcomes_key,
    secrets_key,
    push_configs_key,
)
"""Of each client's task. What has others in their names, transcripts, is named by the registry."""


class TaskRemoval:
    """Removes what Redis keeps in the hash slots of tasks. It is safe to repeat."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._remove_keys = redis.register_script(_REMOVE_KEYS)

    async def keys_of(self, task_ids: Sequence[str]) -> int:
        """Remove the keys of clients' tasks and their sub-agents; return how many there were."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                await self._remove_keys(keys=[name(task_id) for name in _KEYS], client=pipeline)
            return sum(cast("list[int]", await pipeline.execute()))
