"""The transcript cache in Redis: a hash of position → message for each run."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast

from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis
from redis.typing import EncodableT, FieldT

from stores.transcripts import OpenedTranscript, Transcripts
from stores.view_parts import TASK_TTL
from workflows.contract.messages import AssistantMessage, TranscriptMessage
from workflows.contract.names import transcript_key

_MESSAGE: TypeAdapter[TranscriptMessage] = TypeAdapter(TranscriptMessage)
_FIELDS_PER_COMMAND = 500


class RedisTranscripts(Transcripts):
    """Each call is one transaction and one round trip. `ttl` counts from the last call (default 7 days).

    An entry that cannot be read, of a newer version perhaps, counts as missing: it is written again.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = TASK_TTL) -> None:
        self._redis = redis
        self._ttl = ttl

    async def open(
        self, task_id: str, run_id: str, length: int, new: Sequence[TranscriptMessage] = ()
    ) -> OpenedTranscript:
        key = transcript_key(task_id, run_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            if new:
                pipeline.hset(key, mapping=_encode(length - len(new), new))
            pipeline.expire(key, self._ttl)
            pipeline.hgetall(key)
            replies = await pipeline.execute()
        return _decode(cast("Mapping[str, str]", replies[-1]), length)

    async def put(self, task_id: str, run_id: str, start: int, messages: Sequence[TranscriptMessage]) -> None:
        key = transcript_key(task_id, run_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            if start == 0:
                pipeline.delete(key)  # a transcript that is sent again replaces the one that was not whole
            for offset in range(0, len(messages), _FIELDS_PER_COMMAND):
                batch = messages[offset : offset + _FIELDS_PER_COMMAND]
                pipeline.hset(key, mapping=_encode(start + offset, batch))
            pipeline.expire(key, self._ttl)
            await pipeline.execute()

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: AssistantMessage
    ) -> AssistantMessage:
        key = transcript_key(task_id, run_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hsetnx(key, str(position), reply.model_dump_json())
            pipeline.expire(key, self._ttl)
            pipeline.hget(key, str(position))
            replies = await pipeline.execute()
        standing = _parse(cast("str", replies[-1]))
        if isinstance(standing, AssistantMessage):
            return standing
        await self._redis.hset(key, str(position), reply.model_dump_json())
        return reply


def _encode(start: int, messages: Sequence[TranscriptMessage]) -> dict[FieldT, EncodableT]:
    return {str(start + offset): message.model_dump_json() for offset, message in enumerate(messages)}


def _decode(fields: Mapping[str, str], length: int) -> OpenedTranscript:
    kept = [fields[str(position)] for position in range(length) if str(position) in fields]
    messages = tuple(message for message in map(_parse, kept) if message)
    reply = _parse(fields[str(length)]) if str(length) in fields else None
    return OpenedTranscript(
        messages=messages if len(messages) == length else None,
        reply=reply if isinstance(reply, AssistantMessage) else None,
    )


def _parse(entry: str) -> TranscriptMessage | None:
    try:
        return _MESSAGE.validate_json(entry)
    except ValidationError:
        return None
