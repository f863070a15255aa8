"""The messages of a context, over all its tasks."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import cast

from pydantic import TypeAdapter
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from everloop.runtime.redis import cipher_of, literal, members, transact
from everloop.stores.conversations.memory_selection import PromptBudget, newest_messages
from everloop.stores.keys import (
    CONVERSATIONS_KEY,
    conversation_key,
    conversation_positions_key,
    conversation_summaries_key,
)
from everloop.stores.lifetimes import CONVERSATION_TTL
from everloop.stores.scripts import scripts_text
from everloop.stores.token_counts import CountTokens, estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import UserMessage
from everloop.workflows.contract.payloads import HIDE_VALUES, Wire

MAX_MESSAGES = 1000
"""Maximum of stored messages of a conversation, the newest ones."""

MAX_TASKS = 10_000
"""Maximum of tasks that are stored as having appended to a conversation, the newest ones."""


_MOST_TASKS = MAX_TASKS * 11 // 10
"""Number of tasks from which the oldest are deleted: above `MAX_TASKS`, so that few appends have to."""

_TASK = "task:"


class ConversationSummary(Wire):
    """A summary of the messages from position `start` up to `end` (exclusive).

    `level` is 0 for a summary of messages, 1 for one of summaries, 2 for one of those.
    """

    level: int = 0
    start: int
    end: int
    text: str


# Conversations in Redis. They are not rebuilt from Temporal: back them up.

FORGOTTEN = UserMessage(message_id="", parts=())
"""The placeholder of a message of a deleted task."""

_MESSAGE: TypeAdapter[ConversationMessage] = TypeAdapter(ConversationMessage, config=HIDE_VALUES)


class Conversations:
    """Messages of contexts, by their keys (`names.context_key`): each owner has conversations of their own.

    Each message has a position, counted from 0 at the beginning of the conversation. It does not change when
    the oldest messages are removed: `MAX_MESSAGES` are stored. `count_tokens` returns the number of tokens of
    a message (default: an estimate).

    Each context has a few keys. `ttl` is their lifetime after its last message (default 7 days).

    Each change of a conversation is one atomic step. Before it, the conversation is added to the list of all
    conversations.
    """

    def __init__(
        self, redis: Redis, *, ttl: timedelta = CONVERSATION_TTL, count_tokens: CountTokens = estimate_tokens
    ) -> None:
        self.count_tokens = count_tokens
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())
        self._append = redis.register_script(scripts_text("conversations/append.lua"))

    async def append(self, context: str, task_id: str, messages: Sequence[ConversationMessage]) -> None:
        """Append all messages of a task in one step, once for each task.

        The last `MAX_TASKS` tasks are stored for that, as long as the conversation.
        """
        if not messages:
            return
        # The list of all conversations has a hash slot of its own; the cleanup reads the time of the last
        # message from each conversation.
        await self._redis.zadd(CONVERSATIONS_KEY, {context: int(time.time() * 1000)}, gt=True)
        packed = [self._packed(context, message) for message in messages]
        arguments = [task_id, self._ttl, MAX_MESSAGES, *packed]
        fields = await self._append(keys=conversation_keys(context), args=arguments)
        if int(fields or 0) > _MOST_TASKS:
            await self._forget_old_tasks(context)

    async def _forget_old_tasks(self, context: str) -> None:
        """Delete the fields of tasks that have appended, except the last `MAX_TASKS`."""
        positions = await self._positions(context)
        if oldest := sorted(positions, key=positions.__getitem__)[:-MAX_TASKS]:
            await self._redis.hdel(conversation_positions_key(context), *(_TASK + task for task in oldest))

    async def _positions(self, context: str, client: Redis | None = None) -> dict[str, int]:
        """Return the position of the first message of each task."""
        fields = await (client or self._redis).hgetall(conversation_positions_key(context))
        found = cast("dict[str, str]", fields).items()
        return {name.removeprefix(_TASK): int(at) for name, at in found if name.startswith(_TASK)}

    async def get_recent(
        self, context: str, max_messages: int, max_tokens: int | None = None
    ) -> list[ConversationMessage]:
        """Return the newest messages, oldest first; `max_tokens` None: no limit.

        The first one is the user's, and each tool call has its result. If the last turn (a message of the
        user with all replies and tool results) exceeds the limits alone, only its beginning and its end are
        returned; nothing if not even the beginning fits.
        """
        if max_messages < 1:
            return []
        newest = await self._read(context, -max_messages)
        is_all = len(newest) < max_messages
        if not (is_all or any(isinstance(message, UserMessage) for message in newest)):  # a longer turn
            newest = await self._read(context, 0)
        newest = [message for message in newest if message != FORGOTTEN]
        return newest_messages(newest, PromptBudget.of_tokens(max_messages, max_tokens, self.count_tokens))

    async def get_span(self, context: str) -> range:
        """Return the positions of the stored messages."""
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hget(conversation_positions_key(context), "start")
            pipeline.llen(conversation_key(context))
            start, count = cast("tuple[str | None, int]", await pipeline.execute())
        return range(int(start or 0), int(start or 0) + count)

    async def get_range(self, context: str, start: int, end: int) -> list[ConversationMessage]:
        """Return the stored messages from position `start` up to `end` (exclusive)."""
        key, positions = conversation_key(context), conversation_positions_key(context)

        async def read(pipeline: Pipeline) -> list[str]:
            first = int(await pipeline.hget(positions, "start") or 0)
            begin, last = max(start - first, 0), end - first - 1
            return cast("list[str]", await pipeline.lrange(key, begin, last)) if begin <= last else []

        return self._parse(context, await transact(self._redis, read, positions))

    async def times_forgotten(self, context: str) -> int:
        """Return the number of tasks whose messages were removed from a conversation."""
        return int(await self._redis.hget(conversation_positions_key(context), "forgotten") or 0)

    async def compact(self, context: str, summary: ConversationSummary, forgotten: int = 0) -> None:
        """Store a summary in place of those whose ranges it covers. The messages stay.

        A summary is dropped if another one covers its range or overlaps it partly, or if its messages were
        cleared meanwhile or never existed. It is also dropped if the messages of a task were removed after it
        was begun: `forgotten` is the result of `times_forgotten` before that.
        """
        messages, positions, summaries = keys = conversation_keys(context)
        packed, new = self._packed(context, summary), range(summary.start, summary.end)

        async def compact(pipeline: Pipeline) -> None:
            times, cleared = cast("list[str | None]", await pipeline.hmget(positions, "forgotten", "cleared"))
            end, left = (await _span(pipeline, context)).stop, await pipeline.pttl(messages)
            fields = cast("list[str]", await pipeline.hkeys(summaries))
            covered = [field for field in fields if _overlap(_range_of(field), new)]
            pipeline.multi()
            if int(times or 0) != forgotten or not int(cleared or 0) <= new.start < new.stop <= end:
                return
            if not all(_is_part(_range_of(field), new) for field in covered):
                return
            for field in covered:
                pipeline.hdel(summaries, field)
            pipeline.hset(summaries, f"{summary.level}:{new.start}:{new.stop}", packed)
            if left > 0:
                pipeline.pexpire(summaries, left)

        await transact(self._redis, compact, *keys)

    async def get_summaries(self, context: str) -> list[ConversationSummary]:
        """Return the summaries by position. Their ranges do not overlap."""
        found = cast("list[str]", await self._redis.hvals(conversation_summaries_key(context)))
        summaries = map(ConversationSummary.model_validate_json, self._unpacked(context, found))
        return sorted(summaries, key=lambda summary: summary.start)

    async def clear(self, context: str) -> None:
        """Delete all messages and summaries. Positions continue, and no task appends a second time."""
        messages, positions, summaries = keys = conversation_keys(context)

        async def clear(pipeline: Pipeline) -> None:
            last = (await _span(pipeline, context)).stop
            pipeline.multi()
            pipeline.delete(messages, summaries)
            pipeline.hset(positions, mapping={"start": last, "cleared": last, "kept": self._ttl})
            pipeline.expire(positions, self._ttl)

        await transact(self._redis, clear, *keys)

    async def messages_of(self, context: str, task_id: str) -> list[ConversationMessage]:
        """Return the stored messages of a task."""
        positions = await self._positions(context)
        if task_id not in positions:
            return []
        span = _span_of(task_id, positions, (await self.get_span(context)).stop)
        found = await self.get_range(context, span.start, span.stop)
        return [message for message in found if message != FORGOTTEN]

    async def forget_task(self, context: str, task_id: str) -> int:
        """Remove the messages of a task and their summaries; return the number of messages.

        Positions of other messages stay. The task stays stored as having appended, so that it does not append
        again.
        """
        messages, positions, summaries = keys = conversation_keys(context)

        async def forget(pipeline: Pipeline) -> int:
            known, kept = await self._positions(context, pipeline), await _span(pipeline, context)
            fields = cast("list[str]", await pipeline.hkeys(summaries))
            span = _span_of(task_id, known, kept.stop) if task_id in known else range(0)
            first, last = max(span.start - kept.start, 0), span.stop - kept.start - 1
            found = await pipeline.lrange(messages, first, last) if first <= last else []
            indexes = [first + n for n, message in enumerate(found) if message]
            pipeline.multi()
            if not indexes and not (span and span.start < kept.start):
                return 0
            for index in indexes:
                pipeline.lset(messages, index, "")
            # This also drops a summary of them that is in progress. It may be all that is left of messages
            # that were removed to make room.
            pipeline.hincrby(positions, "forgotten", 1)
            for field in fields:
                if _overlap(_range_of(field), span):
                    pipeline.hdel(summaries, field)
            return len(indexes)

        return await transact(self._redis, forget, *keys)

    async def unlist_task(self, context: str, task_id: str) -> None:
        """Delete the field of a task that has appended. Its messages are deleted by then."""
        await self._redis.hdel(conversation_positions_key(context), _TASK + task_id)

    async def prolong(self, context: str, life: timedelta | None) -> None:
        """Set the minimum lifetime of a conversation after its last message; None: the default."""
        keys, positions = conversation_keys(context), conversation_positions_key(context)
        seconds = int(life.total_seconds()) if life else 0

        async def prolong(pipeline: Pipeline) -> None:
            kept, left = await pipeline.hget(positions, "kept"), await pipeline.pttl(positions)
            pipeline.multi()
            if life is None:
                pipeline.hdel(positions, "life")
            elif kept:
                pipeline.hset(positions, mapping={"life": seconds, "kept": max(int(kept), seconds)})
                for key in keys if int(kept) < seconds else ():
                    pipeline.pexpire(key, left + (seconds - int(kept)) * 1000)

        await transact(self._redis, prolong, positions)

    async def contexts_of(self, prefix: str) -> set[str]:
        """Return the contexts with a conversation whose keys have this prefix."""
        return {each async for each in members(self._redis, CONVERSATIONS_KEY, f"{literal(prefix)}*")}

    async def remove(self, context: str) -> int:
        """Delete a conversation; return the number of its keys."""
        removed = await self._redis.delete(*conversation_keys(context))
        await self._redis.zrem(CONVERSATIONS_KEY, context)
        return int(removed)

    async def _read(self, context: str, start: int) -> list[ConversationMessage]:
        """Return the messages from an index of the list on."""
        entries = cast("list[str]", await self._redis.lrange(conversation_key(context), start, -1))
        return self._parse(context, entries)

    def _packed(self, context: str, entry: ConversationMessage | ConversationSummary) -> str | bytes:
        return self._cipher.pack(entry.model_dump_json(exclude_defaults=True), _purpose(context))

    def _unpacked(self, context: str, entries: Iterable[str]) -> Iterable[str]:
        """Return the JSON of entries."""
        return (self._cipher.unpack(entry, _purpose(context)) for entry in entries)

    def _parse(self, context: str, entries: Sequence[str]) -> list[ConversationMessage]:
        """Return messages, with `FORGOTTEN` in place of removed ones."""
        return [
            _MESSAGE.validate_json(json) if json else FORGOTTEN for json in self._unpacked(context, entries)
        ]


def conversation_keys(context: str) -> list[str]:
    """Return the keys of a conversation."""
    return [
        conversation_key(context),
        conversation_positions_key(context),
        conversation_summaries_key(context),
    ]


def _purpose(context: str) -> str:
    return f"conversation {context}"


async def _span(pipeline: Pipeline, context: str) -> range:
    """Return the positions of the stored messages, while the keys of the conversation are watched."""
    start = int(await pipeline.hget(conversation_positions_key(context), "start") or 0)
    return range(start, start + await pipeline.llen(conversation_key(context)))


def _span_of(task_id: str, positions: Mapping[str, int], end: int) -> range:
    """Return the positions of the messages of a task: up to the first of the next task, or the end."""
    first = positions[task_id]
    return range(first, min([position for position in positions.values() if position > first] + [end]))


def _range_of(field: str) -> range:
    """Return the positions of the messages of a summary from its field."""
    _, start, end = field.split(":")
    return range(int(start), int(end))


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _is_part(one: range, other: range) -> bool:
    return other.start <= one.start and one.stop <= other.stop and one != other
