"""The messages of a context, over all its tasks."""

import base64
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Self, cast

from pydantic import TypeAdapter
from redis.asyncio import Redis

from everloop.runtime.redis import NOW, cipher_of
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    conversation_summaries_key,
    conversation_tasks_key,
)
from everloop.stores.retention import CONVERSATION_TTL, Cleaned
from everloop.stores.token_counts import CountTokens, estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import AssistantMessage, ToolMessage, UserMessage
from everloop.workflows.contract.payloads import HIDE_VALUES, Wire

MAX_MESSAGES = 1000
"""So many messages are kept of a conversation, the newest ones."""

COMPRESSED_FROM = 512
"""Characters of JSON from which on an entry is compressed: prose then takes half of its room."""

_COMPRESSED = "z"
"""Before the Base64 of an entry that is compressed. JSON never begins so."""

MAX_TASKS = 10_000
"""So many tasks are known to have appended to a conversation, the newest ones."""


class ConversationSummary(Wire):
    """What stands for the messages from position `start` up to `end` (exclusive).

    `level` is 0 for a summary of messages, 1 for one of summaries, 2 for one of those.
    """

    level: int = 0
    start: int
    end: int
    text: str


# Conversations in Redis. They are not rebuilt from Temporal: back them up.

_APPEND = f"""{NOW}
-- KEYS: messages, positions, summaries, tasks.
-- ARGV: task id, time to live in seconds, how many messages and how many tasks are kept, whether the context
-- is listed among all, messages. Returns 0, and does nothing, where it has to be listed first.
if ARGV[5] == '0' and redis.call('HEXISTS', KEYS[2], 'at') == 0 then return 0 end
local position = tonumber(redis.call('HGET', KEYS[2], 'start') or '0') + redis.call('LLEN', KEYS[1])
if redis.call('ZADD', KEYS[4], 'NX', position, ARGV[1]) == 0 then return 1 end
for n = 6, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[n])
end
local too_many = redis.call('LLEN', KEYS[1]) - tonumber(ARGV[3])
if too_many > 0 then
  redis.call('LTRIM', KEYS[1], too_many, -1)
  redis.call('HINCRBY', KEYS[2], 'start', too_many)
end
redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -tonumber(ARGV[4]) - 1)
redis.call('HSET', KEYS[2], 'at', now())
for n = 1, 4 do
  redis.call('EXPIRE', KEYS[n], ARGV[2])
end
return 1
"""
_LIST = f"{NOW} redis.call('ZADD', KEYS[1], now(), ARGV[1])"
"""The list of all is in a hash slot of its own; the cleanup asks each when it had its last message."""

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
-- KEYS: messages, positions, summaries. ARGV: start, end, level, summary.
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
redis.call('HSET', KEYS[2], 'start', last, 'cleared', last)
redis.call('EXPIRE', KEYS[2], ARGV[1])
"""

_MESSAGE: TypeAdapter[ConversationMessage] = TypeAdapter(ConversationMessage, config=HIDE_VALUES)


class Conversations:
    """Messages of contexts, which `names.context_key` names: every owner has conversations of their own.

    Each message has a position, counted from 0 since the conversation began. It stays the same when the
    oldest messages make room: of a conversation `MAX_MESSAGES` are kept, until 30 days after the last one.
    `count_tokens` tells how many tokens a message has (default: an estimate).

    A few keys for each context; `ttl` is how long they are kept after its last message (default 30 days).

    Whatever changes a conversation is one script: of two that come at once, both are done, one after another.
    A new one is put into the list of all before that.
    """

    def __init__(
        self, redis: Redis, *, ttl: timedelta = CONVERSATION_TTL, count_tokens: CountTokens = estimate_tokens
    ) -> None:
        self.count_tokens = count_tokens
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())
        self._append = redis.register_script(_APPEND)
        self._list = redis.register_script(_LIST)
        self._get_range = redis.register_script(_GET_RANGE)
        self._compact = redis.register_script(_COMPACT)
        self._clear = redis.register_script(_CLEAR)

    async def append(self, context: str, task_id: str, messages: Sequence[ConversationMessage]) -> None:
        """Add what a task has to say, all of it at once; of one task this is done once.

        That is remembered of the last `MAX_TASKS` tasks, for as long as the conversation is kept.
        """
        keys = [*_keys(context), conversation_tasks_key(context)]
        kept = [task_id, self._ttl, MAX_MESSAGES, MAX_TASKS]
        jsons = [self._sealed(context, message) for message in messages]
        if not await self._append(keys=keys, args=[*kept, 0, *jsons]):
            await self._list(keys=[CONVERSATIONS_KEY], args=[context])
            await self._append(keys=keys, args=[*kept, 1, *jsons])

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
        if not any(isinstance(message, UserMessage) for message in newest):  # a turn longer than that
            newest = await self._read(context, 0)
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

    async def compact(self, context: str, summary: ConversationSummary) -> None:
        """Keep a summary in place of those whose ranges it covers; the messages stay.

        Nothing changes if its range is not new: if a summary covers it already, or overlaps it. One of
        messages that were cleared meanwhile, or never were there, is not kept either.
        """
        arguments = [summary.start, summary.end, summary.level, self._sealed(context, summary)]
        await self._compact(keys=_keys(context), args=arguments)

    async def get_summaries(self, context: str) -> list[ConversationSummary]:
        """Return the summaries by position. Their ranges do not overlap."""
        found = cast("list[str]", await self._redis.hvals(conversation_summaries_key(context)))
        summaries = map(ConversationSummary.model_validate_json, self._unsealed(context, found))
        return sorted(summaries, key=lambda summary: summary.start)

    async def clear(self, context: str) -> None:
        """Forget all messages and summaries. Positions go on, and no task that has appended does so again."""
        await self._clear(keys=_keys(context), args=[self._ttl])

    async def _read(self, context: str, start: int) -> list[ConversationMessage]:
        """Return the messages from an index of the list on."""
        kept = cast("list[str]", await self._redis.lrange(conversation_key(context), start, -1))
        return self._parse(context, kept)

    def _sealed(self, context: str, entry: ConversationMessage | ConversationSummary) -> str:
        packed = _packed(entry.model_dump_json(exclude_defaults=True))
        return self._cipher.seal_text(packed, _purpose(context))

    def _unsealed(self, context: str, kept: Iterable[str]) -> Iterable[str]:
        """Return the JSON of entries."""
        return (_unpacked(self._cipher.unseal_text(entry, _purpose(context))) for entry in kept)

    def _parse(self, context: str, kept: Sequence[str]) -> list[ConversationMessage]:
        return [_MESSAGE.validate_json(json) for json in self._unsealed(context, kept)]


def _packed(json: str) -> str:
    """Return what is kept of an entry: nobody reads most of them again, and they are kept the longest."""
    if len(json) < COMPRESSED_FROM:
        return json
    packed = _COMPRESSED + base64.b64encode(zlib.compress(json.encode())).decode()
    return min(packed, json, key=len)


def _unpacked(kept: str) -> str:
    if not kept.startswith(_COMPRESSED):
        return kept
    return zlib.decompress(base64.b64decode(kept.removeprefix(_COMPRESSED))).decode()


def _keys(context: str) -> list[str]:
    return [
        conversation_key(context),
        conversation_positions_key(context),
        conversation_summaries_key(context),
    ]


def _purpose(context: str) -> str:
    return f"conversation {context}"


# Removes conversations that nobody has added to for their time to live.

_BATCH = 500
"""Conversations that one step removes at most."""

_DUE = f"{NOW} local due = now() - tonumber(ARGV[1])"
_COUNT = f"{_DUE} return redis.call('ZCOUNT', KEYS[1], '-inf', due)"
_LIST_DUE = f"{_DUE} return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', due, 'LIMIT', 0, ARGV[2])"
_REMOVE = f"""
-- KEYS: those of one conversation, positions second. ARGV: time to live in milliseconds.
-- Returns when one that is not due had its last message.
{_DUE}
local at = redis.call('HGET', KEYS[2], 'at')
if at and tonumber(at) > due then
  return at
end
redis.call('DEL', unpack(KEYS))
return ''
"""
_UNLIST = f"""
-- KEYS: all conversations. ARGV: time to live in milliseconds, the context, when it had its last message.
{_DUE}
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], 'XX', 'GT', ARGV[3], ARGV[2])
elseif tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 'inf') <= due then
  redis.call('ZREM', KEYS[1], ARGV[2])  -- nobody has listed it anew since
end
"""


class ConversationCleanup:
    """Any number of processes may remove them at once, and each may die at any point.

    `ttl` counts from the last message, also for conversations that began when it was longer.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta) -> None:
        self._ttl = int(ttl.total_seconds() * 1000)
        self._count = redis.register_script(_COUNT)
        self._list = redis.register_script(_LIST_DUE)
        self._remove = redis.register_script(_REMOVE)
        self._unlist = redis.register_script(_UNLIST)

    async def clean(self, *, dry_run: bool) -> Cleaned:
        """Look at 500 conversations at most, and return how many were (or, at most, would be) removed.

        Raises:
            RedisError: Redis is away.
        """
        if dry_run:
            return Cleaned(int(await self._count(keys=[CONVERSATIONS_KEY], args=[self._ttl])))
        listed = await self._list(keys=[CONVERSATIONS_KEY], args=[self._ttl, _BATCH])
        contexts = cast("list[str]", listed)
        removed = sum([await self._remove_one(context) for context in contexts])
        return Cleaned(removed, "due" if len(contexts) == _BATCH else "")

    async def _remove_one(self, context: str) -> int:
        keys = [*_keys(context), conversation_tasks_key(context)]
        at = str(await self._remove(keys=keys, args=[self._ttl]))
        await self._unlist(keys=[CONVERSATIONS_KEY], args=[self._ttl, context, at])
        return int(not at)


# Which messages of a conversation fit into a prompt: the newest ones, none of them without what it needs.
#
# A prompt begins with a message of the user, and providers refuse a tool call without its result as well as
# a result without its call.


@dataclass(frozen=True)
class Room:
    """So many messages, which together have at most `size`. `measure` tells the size of one."""

    messages: int
    size: float = inf
    measure: Callable[[ConversationMessage], int] = lambda _: 0

    @classmethod
    def of_tokens(
        cls, messages: int, tokens: int | None, count: Callable[[ConversationMessage], int]
    ) -> Self:
        """Return room for messages with so many tokens; None for as many as they have."""
        return cls(messages) if tokens is None else cls(messages, tokens, count)

    @property
    def half(self) -> Self:
        """Half as much room."""
        return replace(self, messages=self.messages // 2, size=self.size / 2)

    def holds(self, messages: Sequence[ConversationMessage]) -> bool:
        """Whether there is room for all of the messages."""
        return len(messages) <= self.messages and sum(map(self.measure, messages)) <= self.size


def newest_messages(messages: Sequence[ConversationMessage], room: Room) -> list[ConversationMessage]:
    """Return what there is room for, oldest first: the newest turns as a whole.

    A turn begins with a message of the user. If there is no room for the last one, its first message and the
    newest others of it are returned.
    """
    start = newest_turns(messages, room)
    return list(messages[start:]) if start < len(messages) else _end_of_turn(messages, room)


def newest_turns(messages: Sequence[ConversationMessage], room: Room) -> int:
    """Return where the newest whole turns begin that there is room for; the number of messages for none."""
    starts = (position for position in _safe_positions(messages, room) if _is_turn(messages[position]))
    return min(starts, default=len(messages))


def safe_ends(messages: Sequence[ConversationMessage]) -> list[int]:
    """Return all positions (exclusive) where a cut parts no call from its result; the end is one of them."""
    return [*reversed(_safe_positions(messages, Room(len(messages)))), len(messages)]


def _end_of_turn(messages: Sequence[ConversationMessage], room: Room) -> list[ConversationMessage]:
    turns = [position for position, message in enumerate(messages) if _is_turn(message)]
    if not turns:
        return []
    first = messages[turns[-1]]
    left = Room(room.messages - 1, room.size - room.measure(first), room.measure)
    if left.messages < 0 or left.size < 0:
        return []
    rest = messages[turns[-1] + 1 :]
    return [first, *rest[min(_safe_positions(rest, left), default=len(rest)) :]]


def _safe_positions(messages: Sequence[ConversationMessage], room: Room) -> list[int]:
    """Return the positions, last one first, from which on there is room and every result has its call."""
    found, size = list[int](), 0
    without_call = set[str]()
    for position in range(len(messages) - 1, max(len(messages) - room.messages, 0) - 1, -1):
        message = messages[position]
        size += room.measure(message)
        if size > room.size:
            break
        if isinstance(message, ToolMessage):
            without_call.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            without_call -= {call.id for call in message.tool_calls}
        if not without_call:
            found.append(position)
    return found


def _is_turn(message: ConversationMessage) -> bool:
    return isinstance(message, UserMessage)
