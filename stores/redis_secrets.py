"""Secrets in Redis: a hash of name → JSON for each task."""

import json
from datetime import timedelta
from typing import cast

from pydantic import JsonValue
from redis.asyncio import Redis

from stores.secrets import Secrets
from stores.view_parts import TASK_TTL
from workflows.contract.names import secrets_key


class RedisSecrets(Secrets):
    """Each call is one round trip. `ttl` counts from the last `put` (default 7 days).

    The time to live is for tasks whose end nobody published; the key is deleted with the others' ends.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = TASK_TTL) -> None:
        self._redis = redis
        self._ttl = ttl

    async def put(self, task_id: str, name: str, value: JsonValue) -> None:
        key = secrets_key(task_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, name, json.dumps(value))
            pipeline.expire(key, self._ttl)
            await pipeline.execute()

    async def get(self, task_id: str, name: str) -> JsonValue:
        kept = cast("str | None", await self._redis.hget(secrets_key(task_id), name))
        return None if kept is None else cast("JsonValue", json.loads(kept))

    async def forget(self, task_id: str) -> None:
        await self._redis.delete(secrets_key(task_id))
