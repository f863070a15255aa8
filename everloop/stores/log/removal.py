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

_OPEN = "open"
"""Field of the registry that names no key."""

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

    async def keys_of(self, task_ids: Sequence[str]) -> int:
        """Remove the keys of clients' tasks and their sub-agents; return how many there were."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                pipeline.hkeys(registry_key(task_id))
            registered = cast("list[list[str]]", await pipeline.execute())
        async with self._redis.pipeline(transaction=False) as pipeline:
            for task_id, keys in zip(task_ids, registered, strict=True):
                own = {name(task_id) for name in _KEYS}
                pipeline.unlink(*{*keys, *own} - {_OPEN})
            return sum(cast("list[int]", await pipeline.execute()))
