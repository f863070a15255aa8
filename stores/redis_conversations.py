"""Conversations in Redis. They are not rebuilt from Temporal: back them up."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, cast

from pydantic import Field, TypeAdapter
from redis.asyncio import Redis

from stores.conversations import CONVERSATION_TTL, MAX_MESSAGES, Conversations, SpokenMessage
from workflows.contract.names import conversation_key, conversation_tasks_key
from workflows.contract.wire import HIDE_VALUES

_APPEND = """
-- KEYS: messages, tasks. ARGV: task id, time to live in seconds, length of the conversation, messages.
if redis.call('SADD', KEYS[2], ARGV[1]) == 1 then
  for n = 4, #ARGV do
    redis.call('RPUSH', KEYS[1], ARGV[n])
  end
  redis.call('LTRIM', KEYS[1], -tonumber(ARGV[3]), -1)
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""

_MESSAGE: TypeAdapter[SpokenMessage] = TypeAdapter(
    Annotated[SpokenMessage, Field(discriminator="role")], config=HIDE_VALUES
)


class RedisConversations(Conversations):
    """A list for each context; `ttl` is how long it is kept after its last message (default 30 days)."""

    def __init__(self, redis: Redis, *, ttl: timedelta = CONVERSATION_TTL) -> None:
        self._redis = redis
        self._ttl = int(ttl.total_seconds())
        self._append = redis.register_script(_APPEND)

    async def append(self, context: str, task_id: str, messages: Sequence[SpokenMessage]) -> None:
        await self._append(
            keys=[conversation_key(context), conversation_tasks_key(context)],
            args=[task_id, self._ttl, MAX_MESSAGES, *(message.model_dump_json() for message in messages)],
        )

    async def get_recent(self, context: str, max_messages: int) -> list[SpokenMessage]:
        if not max_messages:
            return []
        found = cast("list[str]", await self._redis.lrange(conversation_key(context), -max_messages, -1))
        return [_MESSAGE.validate_json(message) for message in found]
