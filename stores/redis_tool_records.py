"""Tool records in Redis: a hash for each call, with the fields `started`, `outcome` and `kept`."""

import json
from datetime import timedelta
from typing import cast

from pydantic import JsonValue, ValidationError
from redis.asyncio import Redis

from stores.redis_connection import cipher_of
from stores.tool_records import OUTCOME_ADAPTER, Claim, ToolRecords
from workflows.contract.calls import ToolReply
from workflows.contract.names import tool_record_key

RECORD_TTL = timedelta(days=30)
"""How long a record is kept after its last change: longer than anybody resets a task that old."""


class RedisToolRecords(ToolRecords):
    """Each call is one transaction and one round trip. `ttl` counts from the last call (default 30 days).

    A claim whose answer is lost on the way stands: the next claim hears `STARTED_BEFORE`, which at worst
    leaves out an effect, but never repeats one. How much a killed Redis forgets is its own setting:
    `appendfsync always` nothing, `everysec` up to two seconds of claims that it had acknowledged.

    An outcome that cannot be read, of a newer version perhaps, stands, but says no more than that the call
    was started.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = RECORD_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = ttl

    async def claim(self, task_id: str, call_id: str) -> Claim | ToolReply:
        is_first, outcome = await self._record(task_id, call_id, "started", "1")
        if outcome is None:
            return Claim.FIRST if is_first else Claim.STARTED_BEFORE
        return self._parse(task_id, call_id, outcome) or Claim.STARTED_BEFORE

    async def finish(self, task_id: str, call_id: str, outcome: ToolReply) -> ToolReply:
        sealed = self._cipher.seal_text(outcome.model_dump_json(), _purpose(task_id, call_id))
        _, standing = await self._record(task_id, call_id, "outcome", sealed)
        return outcome if standing is None else self._parse(task_id, call_id, standing) or outcome

    async def release(self, task_id: str, call_id: str) -> None:
        await self._redis.hdel(tool_record_key(task_id, call_id), "started")

    async def keep(self, task_id: str, call_id: str, value: JsonValue) -> None:
        key = tool_record_key(task_id, call_id)
        sealed = self._cipher.seal_text(json.dumps(value), _purpose(task_id, call_id))
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, "kept", sealed)
            pipeline.expire(key, self._ttl)
            await pipeline.execute()

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        kept = cast("str | None", await self._redis.hget(tool_record_key(task_id, call_id), "kept"))
        if kept is None:
            return None
        return cast("JsonValue", json.loads(self._cipher.unseal_text(kept, _purpose(task_id, call_id))))

    async def _record(self, task_id: str, call_id: str, field: str, value: str) -> tuple[bool, str | None]:
        """Set the field unless it is set; return whether it was set now, and the outcome that stands."""
        key = tool_record_key(task_id, call_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hsetnx(key, field, value)
            pipeline.hget(key, "outcome")
            pipeline.expire(key, self._ttl)
            was_set, outcome, _ = await pipeline.execute()
        return bool(was_set), cast("str | None", outcome)

    def _parse(self, task_id: str, call_id: str, outcome: str) -> ToolReply | None:
        text = self._cipher.unseal_text(outcome, _purpose(task_id, call_id))
        try:
            return OUTCOME_ADAPTER.validate_json(text)
        except ValidationError:
            return None


def _purpose(task_id: str, call_id: str) -> str:
    return f"tool call {task_id} {call_id}"
