"""The transcript cache: the messages that a model call reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.typing import EncodableT, FieldT

from everloop.runtime.encryption.cipher import Cipher, EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import attempts_key, tool_record_key, transcript_key
from everloop.stores.leases import IS_LATE, Lease, OvertakenError, late_key, order_of
from everloop.stores.retention import HOLD, TASK_TTL, TaskKeys, hold_keys
from everloop.workflows.contract.messages import (
    AssistantMessage,
    SummaryMessage,
    ToolMessage,
    TranscriptMessage,
)

Reply = TypeVar("Reply", AssistantMessage, SummaryMessage)
"""What a model makes of a transcript: the next message, or one that stands for older ones."""


@dataclass(frozen=True)
class OpenedTranscript:
    """What the cache holds for one model call.

    `messages` is None unless every position below the asked length is there. `reply` is the message at
    that length: a reply or summary that an earlier attempt of the same call left behind. `attempt` is the
    number of this attempt.
    """

    messages: tuple[TranscriptMessage, ...] | None
    reply: AssistantMessage | SummaryMessage | None
    attempt: int = 1


@dataclass(frozen=True)
class Attempt:
    """One attempt at a call. `call` names it within its run; Temporal has counted `count` attempts.

    Temporal begins again when an operator resets an activity; `OpenedTranscript.attempt` is greater than that
    of any attempt before, and the same however often one attempt asks. `lease` is what it holds.
    """

    call: str
    count: int
    lease: Lease


def fitting(sizes: Iterable[tuple[int, int]], max_bytes: int) -> list[int]:
    """Return which positions fit, in order; `sizes` are positions and their sizes, the newest first."""
    room, chosen = max_bytes, list[int]()
    for position, size in sizes:
        if size <= room:
            chosen.append(position)
            room -= size
    return sorted(chosen)


# The transcript cache in Redis: a hash of position → message for each run.

_MESSAGE: TypeAdapter[TranscriptMessage] = TypeAdapter(TranscriptMessage)
_FIELDS_PER_COMMAND = 500
_ANEW = "anew"

_COPY_MISSING = """
for _, position in ipairs(redis.call('HKEYS', KEYS[1])) do
  if tonumber(position) < tonumber(ARGV[1]) and redis.call('HEXISTS', KEYS[2], position) == 0 then
    redis.call('HSET', KEYS[2], position, redis.call('HGET', KEYS[1], position))
  end
end
"""
"""Copies the positions below the argument that the run does not have. Both keys share a hash slot."""

_WRITE = f"""{HOLD}{IS_LATE}
-- KEYS: transcript, attempts, those for `hold`, record of the call.
-- ARGV: order of the attempt, time to live in seconds, "anew" or "", command, then positions and messages.
if is_late(KEYS[5], ARGV[1]) then return 0 end
if ARGV[3] == 'anew' then redis.call('DEL', KEYS[1], KEYS[2]) end
for n = 5, #ARGV, 2 do
  redis.call(ARGV[4], KEYS[1], ARGV[n], ARGV[n + 1])
end
hold(KEYS[1], KEYS[3], KEYS[4], ARGV[2])
return 1
"""

_COUNT = f"""{HOLD}
-- KEYS: attempts, those for `hold`, lease of the call.
-- ARGV: call, Temporal's count, time to live in seconds, token of the attempt, and its order.
local holder = redis.call('HGET', KEYS[4], 'holder')
if holder and holder ~= ARGV[4] then return -1 end
local known = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ' by', ARGV[1] .. ' order')
local count, last, order = unpack(known)
if order and order > ARGV[5] then return -1 end
if last ~= ARGV[4] then
  count = math.max(tonumber(count or '0') + 1, tonumber(ARGV[2]))
  redis.call('HSET', KEYS[1], ARGV[1], count, ARGV[1] .. ' by', ARGV[4], ARGV[1] .. ' order', ARGV[5])
end
hold(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
return tonumber(count)
"""
"""An attempt that was frozen while it asked, and asks again when it goes on, would count as the newest."""


class Transcripts:
    """Position → message, for each run of each task. Losing it costs one re-send, never a result.

    Each call is one transaction and one round trip.

    `ttl` counts from the last call, or from the end of a task that was open then (default 7 days).

    An entry that cannot be read, of a newer version or another key perhaps, counts as missing: it is written
    again.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = TASK_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._keys = TaskKeys(redis, ttl)
        self._write = redis.register_script(_WRITE)

    async def open(  # noqa: PLR0913 -- all that one round trip does, each by its name
        self,
        task_id: str,
        run_id: str,
        length: int,
        new: Sequence[TranscriptMessage] = (),
        *,
        previous_run: str = "",
        attempt: Attempt | None = None,
    ) -> OpenedTranscript:
        """Write `new` as the last of `length` positions, then read all of them and the one after.

        What this run lacks before `new` is first copied from `previous_run`, which it continues.

        Raises:
            OvertakenError: the attempt was overtaken.
        """
        key, start, entries = transcript_key(task_id, run_id), length - len(new), self._entries(task_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            if previous_run:
                pipeline.eval(_COPY_MISSING, 2, transcript_key(task_id, previous_run), key, str(start))
            if new:
                pipeline.hset(key, mapping=entries.encode(start, new))
            if attempt:
                lease = attempt.lease
                lease_key = tool_record_key(lease.task_id, lease.call_id)
                keys = [attempts_key(task_id, run_id), *hold_keys(task_id), lease_key]
                counted = [
                    attempt.call,
                    str(attempt.count),
                    str(self._keys.seconds),
                    lease.token,
                    lease.order,
                ]
                pipeline.eval(_COUNT, len(keys), *keys, *counted)
            await self._keys.queue_hold(pipeline, task_id, key)
            pipeline.hgetall(key)
            replies = await pipeline.execute()
        opened = entries.decode(cast("Mapping[str, str]", replies[-1]), length)
        if not attempt:
            return opened
        if (count := int(replies[-3])) < 0:
            raise OvertakenError
        return replace(opened, attempt=count)

    async def newest(
        self, task_id: str, run_id: str, max_bytes: int
    ) -> Mapping[int, TranscriptMessage] | None:
        """Return the newest messages that together have so many bytes at most, by position, oldest first.

        A larger message is left out, and so is one that cannot be read. None: the beginning is not there, so
        that the cache was lost.
        """
        key, entries = transcript_key(task_id, run_id), self._entries(task_id)
        positions = sorted(map(int, await self._redis.hkeys(key)), reverse=True)
        if not positions or positions[-1] != 0:
            return None
        async with self._redis.pipeline(transaction=False) as pipeline:
            for position in positions:
                pipeline.hstrlen(key, str(position))
            sizes = cast("list[int]", await pipeline.execute())
        wanted = fitting(zip(positions, sizes, strict=True), max_bytes)
        fields = [str(position) for position in wanted]
        kept = cast("list[str | None]", await self._redis.hmget(key, fields)) if fields else []
        read = {at: entries.parse(entry) for at, entry in zip(wanted, kept, strict=True) if entry}
        return {position: message for position, message in read.items() if message}

    async def put(
        self,
        task_id: str,
        run_id: str,
        start: int,
        messages: Sequence[TranscriptMessage],
        lease: Lease | None = None,
    ) -> None:
        """Write messages from position `start` on, over whatever stands there.

        From position 0 on, this is the whole transcript that is sent again: nothing else stays, and attempts
        count anew.

        Raises:
            OvertakenError: a later attempt has claimed the call that `lease` names.
        """
        entries = self._entries(task_id)
        async with self._redis.pipeline(transaction=True) as pipeline:
            if start == 0:  # a transcript that is sent again replaces the one that was not whole
                await self._queue_write(pipeline, task_id, run_id, lease, {}, how=_ANEW)
            for at in range(0, len(messages), _FIELDS_PER_COMMAND):
                batch = entries.encode(start + at, messages[at : at + _FIELDS_PER_COMMAND])
                await self._queue_write(pipeline, task_id, run_id, lease, batch)
            replies = await pipeline.execute()
        _check_written(replies)

    async def put_result(
        self, task_id: str, run_id: str, position: int, result: ToolMessage, lease: Lease | None = None
    ) -> None:
        """Write the result of a tool call unless something stands there.

        Raises:
            OvertakenError: as for `put`.
        """
        entries = self._entries(task_id).encode(position, [result])
        async with self._redis.pipeline(transaction=True) as pipeline:
            await self._queue_write(pipeline, task_id, run_id, lease, entries, command="HSETNX")
            replies = await pipeline.execute()
        _check_written(replies)

    async def put_reply(
        self, task_id: str, run_id: str, position: int, reply: Reply, lease: Lease | None = None
    ) -> Reply:
        """Write the reply unless one of its kind stands there; return the one that stands there now.

        Raises:
            OvertakenError: as for `put`.
        """
        key, entries = transcript_key(task_id, run_id), self._entries(task_id)
        written = entries.encode(position, [reply])
        async with self._redis.pipeline(transaction=True) as pipeline:
            await self._queue_write(pipeline, task_id, run_id, lease, written, command="HSETNX")
            pipeline.hget(key, str(position))
            was_written, entry = await pipeline.execute()
        _check_written([was_written])
        standing = entries.parse(cast("str", entry))
        if isinstance(standing, type(reply)):
            return standing
        async with self._redis.pipeline(transaction=True) as pipeline:
            await self._queue_write(pipeline, task_id, run_id, lease, written)
            replies = await pipeline.execute()
        _check_written(replies)
        return reply

    async def _queue_write(  # noqa: PLR0913 -- what to write where, and for whom
        self,
        pipeline: Pipeline,
        task_id: str,
        run_id: str,
        lease: Lease | None,
        entries: Mapping[FieldT, EncodableT],
        *,
        command: str = "HSET",
        how: str = "",
    ) -> None:
        """Let a transaction write entries, unless the attempt that holds the lease was overtaken."""
        keys = [transcript_key(task_id, run_id), attempts_key(task_id, run_id), *hold_keys(task_id)]
        written = [word for entry in entries.items() for word in entry]
        await self._write(
            keys=[*keys, late_key(task_id, lease)],
            args=[order_of(lease), self._keys.seconds, how, command, *written],
            client=pipeline,
        )

    def _entries(self, task_id: str) -> "_Entries":
        return _Entries(self._cipher, f"transcript {task_id}")


def _check_written(replies: Iterable[int]) -> None:
    if not all(replies):
        raise OvertakenError


@dataclass(frozen=True)
class _Entries:
    """How the messages of one task are kept. Not for one run: the next one copies them."""

    cipher: Cipher
    purpose: str

    def encode(self, start: int, messages: Sequence[TranscriptMessage]) -> dict[FieldT, EncodableT]:
        sealed = (self.cipher.seal_text(message.model_dump_json(), self.purpose) for message in messages)
        return {str(start + offset): entry for offset, entry in enumerate(sealed)}

    def decode(self, fields: Mapping[str, str], length: int) -> OpenedTranscript:
        kept = [fields[str(position)] for position in range(length) if str(position) in fields]
        messages = tuple(message for message in map(self.parse, kept) if message)
        reply = self.parse(fields[str(length)]) if str(length) in fields else None
        return OpenedTranscript(
            messages=messages if len(messages) == length else None,
            reply=reply if isinstance(reply, AssistantMessage | SummaryMessage) else None,
        )

    def parse(self, entry: str) -> TranscriptMessage | None:
        try:
            return _MESSAGE.validate_json(self.cipher.unseal_text(entry, self.purpose))
        except (EncryptionError, ValidationError):
            return None
