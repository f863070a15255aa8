"""The messages of a context, over all its tasks."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import cast

from pydantic import TypeAdapter
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from everloop.runtime.cluster import ClusterRedis
from everloop.runtime.redis import cipher_of, literal, members
from everloop.stores.conversations.fitting import Room, newest_messages
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    conversation_summaries_key,
)
from everloop.stores.retention import CONVERSATION_TTL
from everloop.stores.token_counts import CountTokens, estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import UserMessage
from everloop.workflows.contract.payloads import HIDE_VALUES, Wire

MAX_MESSAGES = 1000
"""So many messages are kept of a conversation, the newest ones."""

MAX_TASKS = 10_000
"""So many tasks are known to have appended to a conversation, the newest ones."""


_TASK = "task:"


class ConversationSummary(Wire):
    """What stands for the messages from position `start` up to `end` (exclusive).

    `level` is 0 for a summary of messages, 1 for one of summaries, 2 for one of those.
    """

    level: int = 0
    start: int
    end: int
    text: str


# Conversations in Redis. They are not rebuilt from Temporal: back them up.

_APPEND = """
-- KEYS: messages, positions, summaries.
-- ARGV: task id, time to live in seconds, how many messages and how many tasks are kept, messages.
local task = 'task:' .. ARGV[1]
local start, kept, life, known = unpack(redis.call('HMGET', KEYS[2], 'start', 'kept', 'life', task))
if known then return end
local first, count = tonumber(start or 0), 0
for n = 5, #ARGV, 1000 do
  count = redis.call('RPUSH', KEYS[1], unpack(ARGV, n, math.min(n + 999, #ARGV)))
end
local position = first + count - (#ARGV - 4)
local too_many = count - tonumber(ARGV[3])
if too_many > 0 then
  redis.call('LTRIM', KEYS[1], too_many, -1)
  first = first + too_many
end
local seconds = math.max(ARGV[2], life or 0)
redis.call('HSET', KEYS[2], 'start', first, 'kept', seconds, task, position)
for n = 1, kept and 3 or 2 do  -- a new one has no summaries
  redis.call('EXPIRE', KEYS[n], seconds)
end
-- Some tasks more than are kept, so that this is rare.
if position > tonumber(ARGV[4]) and redis.call('HLEN', KEYS[2]) > ARGV[4] * 1.1 then
  local all, tasks, at = redis.call('HGETALL', KEYS[2]), {}, {}
  for n = 1, #all, 2 do
    if all[n]:sub(1, 5) == 'task:' then
      tasks[#tasks + 1], at[all[n]] = all[n], tonumber(all[n + 1])
    end
  end
  table.sort(tasks, function(one, other) return at[one] > at[other] end)
  for n = ARGV[4] + 1, #tasks do
    redis.call('HDEL', KEYS[2], tasks[n])
  end
end
"""

_GET_RANGE = """
-- KEYS: messages, positions. ARGV: start, end.
local first = tonumber(redis.call('HGET', KEYS[2], 'start') or '0')
local start, stop = math.max(tonumber(ARGV[1]) - first, 0), tonumber(ARGV[2]) - first - 1
if stop < start then
  return {}
end
return redis.call('LRANGE', KEYS[1], start, stop)
"""

_COMPACT = """
-- KEYS: messages, positions, summaries. ARGV: start, end, level, summary, how often tasks had been forgotten.
if (redis.call('HGET', KEYS[2], 'forgotten') or '0') ~= ARGV[5] then
  return
end
local start, stop = tonumber(ARGV[1]), tonumber(ARGV[2])
local last = tonumber(redis.call('HGET', KEYS[2], 'start') or '0') + redis.call('LLEN', KEYS[1])
local cleared = tonumber(redis.call('HGET', KEYS[2], 'cleared') or '0')
if start < cleared or stop <= start or stop > last then
  return
end
local covered = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
  local _, from, to = string.match(field, '(%d+):(%d+):(%d+)')
  from, to = tonumber(from), tonumber(to)
  if from < stop and start < to then
    if from < start or stop < to or (from == start and to == stop) then
      return
    end
    table.insert(covered, field)
  end
end
for _, field in ipairs(covered) do
  redis.call('HDEL', KEYS[3], field)
end
redis.call('HSET', KEYS[3], ARGV[3] .. ':' .. ARGV[1] .. ':' .. ARGV[2], ARGV[4])
local left = redis.call('PTTL', KEYS[1])
if left > 0 then
  redis.call('PEXPIRE', KEYS[3], left)
end
"""

_CLEAR = """
-- KEYS: messages, positions, summaries. ARGV: time to live in seconds.
local last = tonumber(redis.call('HGET', KEYS[2], 'start') or '0') + redis.call('LLEN', KEYS[1])
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('HSET', KEYS[2], 'start', last, 'cleared', last, 'kept', ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[1])
"""

_PROLONG = """
-- KEYS: messages, positions, summaries. ARGV: seconds after the last message.
local kept = tonumber((redis.call('HGET', KEYS[2], 'kept')))
if not kept then return end
redis.call('HSET', KEYS[2], 'life', ARGV[1])
if kept < tonumber(ARGV[1]) then
  local left = redis.call('PTTL', KEYS[2]) + (ARGV[1] - kept) * 1000
  redis.call('HSET', KEYS[2], 'kept', ARGV[1])
  for n = 1, 3 do
    redis.call('PEXPIRE', KEYS[n], left)
  end
end
"""
_FORGET_TASK = """
-- KEYS: messages, positions, summaries. ARGV: task id. Returns how many of its messages were there.
-- Positions of others stay. It is still known to have appended: else it might do so again.
local first, from = unpack(redis.call('HMGET', KEYS[2], 'start', 'task:' .. ARGV[1]))
if not from then return 0 end
first, from = tonumber(first), tonumber(from)
local stop = first + redis.call('LLEN', KEYS[1])
local known = redis.call('HGETALL', KEYS[2])
for n = 1, #known, 2 do  -- up to where the next one begins
  local position = known[n]:sub(1, 5) == 'task:' and tonumber(known[n + 1])
  if position and position > from and position < stop then
    stop = position
  end
end
local forgotten = 0
for index = math.max(from - first, 0), stop - first - 1 do
  if redis.call('LINDEX', KEYS[1], index) ~= '' then
    redis.call('LSET', KEYS[1], index, '')
    forgotten = forgotten + 1
  end
end
if forgotten == 0 and from >= first then return 0 end
-- Nor is a summary kept that is being written of them; of messages that made room it may be all that is left.
redis.call('HINCRBY', KEYS[2], 'forgotten', 1)
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
  local _, start, till = string.match(field, '(%d+):(%d+):(%d+)')
  if tonumber(start) < stop and from < tonumber(till) then
    redis.call('HDEL', KEYS[3], field)
  end
end
return forgotten
"""

FORGOTTEN = UserMessage(message_id="", parts=())
"""Stands where a message of a deleted task stood."""

_MESSAGE: TypeAdapter[ConversationMessage] = TypeAdapter(ConversationMessage, config=HIDE_VALUES)


class Conversations:
    """Messages of contexts, which `names.context_key` names: every owner has conversations of their own.

    Each message has a position, counted from 0 since the conversation began. It stays the same when the
    oldest messages make room: of a conversation `MAX_MESSAGES` are kept, until 7 days after the last one.
    `count_tokens` tells how many tokens a message has (default: an estimate).

    A few keys for each context; `ttl` is how long they are kept after its last message (default 7 days).

    Whatever changes a conversation is one script: of two that come at once, both are done, one after another.
    It is put into the list of all before that.
    """

    def __init__(
        self, redis: Redis, *, ttl: timedelta = CONVERSATION_TTL, count_tokens: CountTokens = estimate_tokens
    ) -> None:
        self.count_tokens = count_tokens
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())
        self._append = redis.register_script(_APPEND)
        self._get_range = redis.register_script(_GET_RANGE)
        self._compact = redis.register_script(_COMPACT)
        self._clear = redis.register_script(_CLEAR)
        self._prolong = redis.register_script(_PROLONG)
        self._forget_task = redis.register_script(_FORGET_TASK)

    async def append(self, context: str, task_id: str, messages: Sequence[ConversationMessage]) -> None:
        """Add what a task has to say, all of it at once; of one task this is done once.

        That is remembered of the last `MAX_TASKS` tasks, for as long as the conversation is kept.
        """
        if not messages:
            return
        keys = conversation_keys(context)
        kept = [task_id, self._ttl, MAX_MESSAGES, MAX_TASKS]
        arguments = [*kept, *(self._packed(context, message) for message in messages)]
        # The list of all is in a hash slot of its own; the cleanup asks each when it had its last message.
        listed = {context: int(time.time() * 1000)}
        if isinstance(self._redis, ClusterRedis):  # its nodes would not wait for one another
            await self._redis.zadd(CONVERSATIONS_KEY, listed, gt=True)
            await self._append(keys=keys, args=arguments)
            return
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.zadd(CONVERSATIONS_KEY, listed, gt=True)
                pipeline.evalsha(self._append.sha, len(keys), *keys, *arguments)
                await pipeline.execute()
        except NoScriptError:
            await self._append(keys=keys, args=arguments)

    async def get_recent(
        self, context: str, max_messages: int, max_tokens: int | None = None
    ) -> list[ConversationMessage]:
        """Return the newest messages, oldest first; None for as many tokens as they have.

        The first one is the user's, and no tool call is parted from its result. Of the last turn (a message
        of the user and what came of it) only the beginning and the end are returned if it is too long alone;
        nothing if not even the beginning has room.
        """
        if max_messages < 1:
            return []
        newest = await self._read(context, -max_messages)
        is_all = len(newest) < max_messages
        if not (is_all or any(isinstance(message, UserMessage) for message in newest)):  # a longer turn
            newest = await self._read(context, 0)
        newest = [message for message in newest if message != FORGOTTEN]
        return newest_messages(newest, Room.of_tokens(max_messages, max_tokens, self.count_tokens))

    async def get_span(self, context: str) -> range:
        """Return the positions of the messages that are kept."""
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hget(conversation_positions_key(context), "start")
            pipeline.llen(conversation_key(context))
            start, count = cast("tuple[str | None, int]", await pipeline.execute())
        return range(int(start or 0), int(start or 0) + count)

    async def get_range(self, context: str, start: int, end: int) -> list[ConversationMessage]:
        """Return the messages from position `start` up to `end` (exclusive), as far as they are kept."""
        keys = [conversation_key(context), conversation_positions_key(context)]
        return self._parse(context, cast("list[str]", await self._get_range(keys=keys, args=[start, end])))

    async def times_forgotten(self, context: str) -> int:
        """Return how often a task of a conversation was forgotten."""
        return int(await self._redis.hget(conversation_positions_key(context), "forgotten") or 0)

    async def compact(self, context: str, summary: ConversationSummary, forgotten: int = 0) -> None:
        """Keep a summary in place of those whose ranges it covers; the messages stay.

        Nothing changes if its range is not new: if a summary covers it already, or overlaps it. One of
        messages that were cleared meanwhile, or never were there, is not kept either; nor one for which was
        read before a task was forgotten: `forgotten` is what `times_forgotten` said before that.
        """
        packed = self._packed(context, summary)
        arguments = [summary.start, summary.end, summary.level, packed, forgotten]
        await self._compact(keys=conversation_keys(context), args=arguments)

    async def get_summaries(self, context: str) -> list[ConversationSummary]:
        """Return the summaries by position. Their ranges do not overlap."""
        found = cast("list[str]", await self._redis.hvals(conversation_summaries_key(context)))
        summaries = map(ConversationSummary.model_validate_json, self._unpacked(context, found))
        return sorted(summaries, key=lambda summary: summary.start)

    async def clear(self, context: str) -> None:
        """Forget all messages and summaries. Positions go on, and no task that has appended does so again."""
        await self._clear(keys=conversation_keys(context), args=[self._ttl])

    async def messages_of(self, context: str, task_id: str) -> list[ConversationMessage]:
        """Return what a task has added, as far as it is kept."""
        key = conversation_positions_key(context)
        fields = cast("dict[str, str]", await self._redis.hgetall(key))
        positions = {name: int(at) for name, at in fields.items() if name.startswith(_TASK)}
        if (first := positions.get(_TASK + task_id)) is None:
            return []
        later = [position for position in positions.values() if position > first]
        end = min(later) if later else (await self.get_span(context)).stop
        found = await self.get_range(context, first, end)
        return [message for message in found if message != FORGOTTEN]

    async def forget_task(self, context: str, task_id: str) -> int:
        """Remove the messages of a task, and summaries of them; return how many messages there were."""
        return int(await self._forget_task(keys=conversation_keys(context), args=[task_id]))

    async def unlist_task(self, context: str, task_id: str) -> None:
        """Let a conversation know no more that a task has appended to it; its messages are gone by then."""
        await self._redis.hdel(conversation_positions_key(context), _TASK + task_id)

    async def prolong(self, context: str, life: timedelta | None) -> None:
        """Keep a conversation for at least so long after its last message; None: as the others."""
        if life is None:
            await self._redis.hdel(conversation_positions_key(context), "life")
            return
        await self._prolong(keys=conversation_keys(context), args=[int(life.total_seconds())])

    async def contexts_of(self, prefix: str) -> set[str]:
        """Return the contexts that have a conversation and whose keys begin so."""
        return {each async for each in members(self._redis, CONVERSATIONS_KEY, f"{literal(prefix)}*")}

    async def remove(self, context: str) -> int:
        """Remove all of a conversation; return how many keys there were."""
        removed = await self._redis.delete(*conversation_keys(context))
        await self._redis.zrem(CONVERSATIONS_KEY, context)
        return int(removed)

    async def _read(self, context: str, start: int) -> list[ConversationMessage]:
        """Return the messages from an index of the list on."""
        kept = cast("list[str]", await self._redis.lrange(conversation_key(context), start, -1))
        return self._parse(context, kept)

    def _packed(self, context: str, entry: ConversationMessage | ConversationSummary) -> str | bytes:
        return self._cipher.pack(entry.model_dump_json(exclude_defaults=True), _purpose(context))

    def _unpacked(self, context: str, kept: Iterable[str]) -> Iterable[str]:
        """Return the JSON of entries."""
        return (self._cipher.unpack(entry, _purpose(context)) for entry in kept)

    def _parse(self, context: str, kept: Sequence[str]) -> list[ConversationMessage]:
        """Return messages; in the place of those that were removed stands `FORGOTTEN`."""
        return [_MESSAGE.validate_json(json) if json else FORGOTTEN for json in self._unpacked(context, kept)]


def conversation_keys(context: str) -> list[str]:
    """Return the keys of a conversation."""
    return [
        conversation_key(context),
        conversation_positions_key(context),
        conversation_summaries_key(context),
    ]


def _purpose(context: str) -> str:
    return f"conversation {context}"
