"""The contexts of owners: their titles, tasks, usage and retention.

`enter.lua` notes a task in the record of its context when it lists the task. Fields of the record: `title`;
`titled`, the task whose first words are the title, unless a user has set another; `created`; `task:<id>`, see
`_NotedTask`; `open`, the number of tasks that have not ended; `input`, `output`, `cost` and `unpriced`, the
usage of deleted tasks; `retention` and `keep:<task id>`, the retention set by users, in seconds.
"""

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from structlog.typing import FilteringBoundLogger

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of, transact
from everloop.stores.keys import (
    RETENTIONS_KEY,
    context_artifacts_key,
    context_info_key,
    head_key,
    log_key,
    owner_contexts_key,
    registry_key,
    snapshot_key,
)
from everloop.stores.lifetimes import ARTIFACT_TTL
from everloop.stores.log.log_codec import seal_title, title_purpose, unword, word
from everloop.stores.log.log_types import (
    START,
    IndexEntry,
    Listing,
    decode_page_token,
    encode_page_token,
    position_order,
)
from everloop.stores.log.rows import time_word
from everloop.stores.scripts import scripts_text
from everloop.workflows.contract.fold import TaskIdentity, microseconds
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.names import context_key

_TASK, _KEEP = "task:", "keep:"
_OPEN, _ENDED, _MESSAGE = "1", "0", "-"
_USED = ("input", "output", "cost", "unpriced")
"""Cost in billionths of a dollar; `unpriced`: number of tasks of unknown cost."""

MOST_LOOKED_AT = 1000
"""Maximum of contexts that are searched for one page."""

_Scored = tuple[str, float]

_log: FilteringBoundLogger = structlog.get_logger(__name__)

_NOTHING_USED = ("0", "0", "0", "0")


class _NotedTask(NamedTuple):
    """A task, or a message answered without one, in the record of a context. Each field is a word."""

    created: str
    changed: str
    agent: str
    open: str
    """`1` if open, `0` after the end, `-` for a message."""
    used: tuple[str, ...]
    """In the order of `_USED`."""
    revision: str

    @classmethod
    def parse(cls, field: str) -> "_NotedTask | None":
        """Return the words of a field; None if it is missing."""
        if not field:
            return None
        created, changed, agent, is_open, *used, revision = field.split()
        return cls(created, changed, agent, is_open, tuple(used), revision)

    @property
    def field(self) -> str:
        return " ".join((*self[:-2], *self.used, self.revision))


@dataclass(frozen=True)
class ContextTask:
    """A task of a context, or a message answered without one, as long as the context is stored."""

    task_id: str
    agent_id: str
    created_at: datetime
    changed_at: datetime
    is_open: bool
    retention: timedelta | None = None
    """Retention after the end; None: as configured."""


@dataclass(frozen=True)
class ContextInfo:
    """The stored facts of a context.

    `retention`: time from the last status of a task to the deletion of the context. `open_tasks`: number of
    tasks that have not ended.
    """

    owner: str
    context_id: str
    title: str
    created_at: datetime
    updated_at: datetime
    count: int
    open_tasks: int
    agents: tuple[str, ...]
    usage: Usage
    retention: timedelta | None
    tasks: Sequence[ContextTask] = field(default=(), repr=False)

    @property
    def end(self) -> datetime | None:
        """The time of its deletion; None: as configured, or a task has not ended."""
        return None if self.retention is None or self.open_tasks else self.updated_at + self.retention


@dataclass(frozen=True)
class ContextPage:
    """Contexts, the most recently changed first; `next_page_token` is empty at the end."""

    contexts: tuple[ContextInfo, ...]
    next_page_token: str


class DueContext(NamedTuple):
    """A context whose retention is to be checked, `since` a time in seconds."""

    owner: str
    context_id: str
    since: float


class Contexts:
    """Lists contexts and sets their titles and retention. Safe to call from several processes at once.

    `artifact_ttl` is the retention of artifacts (default 30 days). The record of a context with artifacts is
    stored for at least as long.
    """

    def __init__(self, redis: Redis, artifact_ttl: timedelta = ARTIFACT_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._artifact_ttl = artifact_ttl
        self._prolong = redis.register_script(scripts_text("log/prolong.lua"))

    async def page(self, owner: str, size: int, token: str = "", query: str = "") -> ContextPage:
        """Return contexts of an owner; with `query` those whose title contains it, ignoring case.

        Searches at most 1,000 contexts: a page may have fewer than `size` without being the last one.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        key, found, needle = owner_contexts_key(owner), list[ContextInfo](), query.casefold()
        at = decode_page_token(token)
        for _ in range(MOST_LOOKED_AT // size + 1):
            entries = await self._entries(key, at, size + 1)
            for number, at in enumerate(entries[:size]):
                context = await self.get(owner, unword(at.name))
                if context is None:
                    await self._redis.zrem(key, at.name)
                elif needle in context.title.casefold():
                    found.append(context)
                if len(found) == size:
                    has_more = number + 1 < len(entries)
                    return ContextPage(tuple(found), encode_page_token(at) if has_more else "")
            if len(entries) <= size:
                return ContextPage(tuple(found), "")
        return ContextPage(tuple(found), encode_page_token(at) if at else "")

    async def get(self, owner: str, context_id: str) -> ContextInfo | None:
        """Return a context with its tasks; None if it is unknown."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(context_info_key(owner, context_id))
            pipeline.zscore(owner_contexts_key(owner), word(context_id))
            fields, updated = cast("tuple[Mapping[str, str], float | None]", await pipeline.execute())
        return self._context(owner, context_id, fields, int(updated)) if fields and updated else None

    async def set_title(self, owner: str, context_id: str, title: str) -> bool:
        """Set the title of a context; return whether the context exists."""
        sealed = seal_title(title, owner, context_id, self._cipher)
        return await self._change(owner, context_id, "title", sealed, "titled", "")

    async def set_retention(
        self, owner: str, context_id: str, retention: timedelta | None, task_id: str = ""
    ) -> bool:
        """Set the retention of a context, or of one of its tasks; None: as configured.

        Return whether the context exists. The housekeeping checks it from now on.
        """
        name = _KEEP + task_id if task_id else "retention"
        seconds = str(int(retention.total_seconds())) if retention else ""
        member = f"{word(owner)} {word(context_id)}"
        # Before the change, so that the housekeeping checks it even if this process dies in between; again
        # after it, because the housekeeping may have checked it meanwhile.
        await self._redis.zadd(RETENTIONS_KEY, {member: time.time()})
        is_stored = await self._change(owner, context_id, name, seconds)
        await self._redis.zadd(RETENTIONS_KEY, {member: time.time()})
        return is_stored

    def noted(self, task: TaskIdentity, field: str, listing: Listing, seconds: int) -> list[str | int]:
        """Return the arguments of `enter.lua` for a task's context, by the present field of its record."""
        before, at = _NotedTask.parse(field), time_word(listing.at)
        is_newest = not before or position_order(before.revision) <= position_order(listing.revision)
        noted = _NotedTask(
            before.created if before else at,
            at,
            word(task.agent_id),
            _ENDED if listing.state.is_terminal else _OPEN,
            tuple(listing.used.split()) or _NOTHING_USED,
            listing.revision,
        )
        return _noting(task, before, noted if is_newest or not before else before, listing.title, seconds)

    def noted_answer(self, task: TaskIdentity, field: str, title: str, seconds: int) -> list[str | int]:
        """Return the same for a message that was answered without a task."""
        before, at = _NotedTask.parse(field), time_word(microseconds(task.created_at))
        noted = _NotedTask(at, at, word(task.agent_id), _MESSAGE, _NOTHING_USED, START)
        return _noting(task, before, before or noted, title, seconds)

    async def forget_task(self, owner: str, context_id: str, task_id: str) -> bool:
        """Remove a task from the record of its context; return whether it was there. Its usage stays counted.

        If the title of the context was made of this task, it is made of another one.
        """
        key = context_info_key(owner, context_id)

        async def forget(pipeline: Pipeline) -> tuple[bool, bool]:
            field, titled = cast("list[str | None]", await pipeline.hmget(key, _TASK + task_id, "titled"))
            task = _NotedTask.parse(field or "")
            pipeline.multi()
            pipeline.hdel(
                key, _TASK + task_id, _KEEP + task_id, *(("title", "titled") if titled == task_id else ())
            )
            if task:
                for name, count in zip(_USED, task.used, strict=True):
                    pipeline.hincrby(key, name, int(count))
            if task and task.open == _OPEN:
                pipeline.hincrby(key, "open", -1)
            return task is not None, titled == task_id

        was_known, was_titled = await transact(self._redis, forget, key)
        context = await self.get(owner, context_id) if was_titled else None
        if context and not context.title:
            for task in context.tasks:
                if title := cast("str | None", await self._redis.hget(head_key(task.task_id), "title")):
                    await self._change(owner, context_id, "title", title, "titled", task.task_id)
                    break
        return was_known

    async def prune(self, owner: str) -> None:
        """Remove contexts whose records have expired from the list of an owner."""
        key = owner_contexts_key(owner)
        for context_id in await self.ids(owner):
            if not await self._redis.exists(context_info_key(owner, context_id)):
                await self._redis.zrem(key, word(context_id))

    async def prolong(self, owner: str, context_id: str, left: timedelta, task_ids: Iterable[str]) -> None:
        """Keep the record of a context, and some of its tasks, for at least this time from now on."""
        seconds = int(left.total_seconds())
        await self._prolong(keys=[context_info_key(owner, context_id)], args=[seconds])
        for task_id in task_ids:
            keys = [registry_key(task_id), head_key(task_id), snapshot_key(task_id), log_key(task_id)]
            await self._prolong(keys=keys, args=[seconds])

    def ask_retention(self, pipeline: Pipeline, task: TaskIdentity) -> None:
        """Queue a query for the retention that users have set for a task and its context, in seconds."""
        pipeline.hmget(context_info_key(task.owner, task.context_id), _KEEP + task.task_id, "retention")

    async def outlast(
        self, task: TaskIdentity, retention: Sequence[str | None], *, has_artifacts: bool
    ) -> None:
        """Keep a task that has just ended for its set retention, and its context as long as its artifacts.

        `retention`: see `ask_retention`. The housekeeping does so, too, but only after events have expired.
        """
        if seconds := next(filter(None, retention), None):
            await self.prolong(task.owner, task.context_id, timedelta(seconds=int(seconds)), [task.task_id])
        if has_artifacts:
            await self.prolong(task.owner, task.context_id, self._artifact_ttl, [])

    async def due(self, most: int) -> list[DueContext]:
        """Return contexts whose retention is to be checked now."""
        found = await self._redis.zrangebyscore(RETENTIONS_KEY, "-inf", time.time(), 0, most, withscores=True)
        scored = cast("list[_Scored]", found)
        pairs = ((*map(unword, member.split(" ")),) for member, _ in scored)
        return [
            DueContext(owner, name, since) for (owner, name), (_, since) in zip(pairs, scored, strict=True)
        ]

    async def look_again(self, due: DueContext, at: datetime | None) -> None:
        """Set the time of the next check of a context; None: never, because no retention is set.

        If a retention was set since the context was due, it stays due.
        """
        member = f"{word(due.owner)} {word(due.context_id)}"

        async def replace(pipeline: Pipeline) -> None:
            since = await pipeline.zscore(RETENTIONS_KEY, member)
            pipeline.multi()
            if since == due.since and at is None:
                pipeline.zrem(RETENTIONS_KEY, member)
            elif since == due.since and at:
                pipeline.zadd(RETENTIONS_KEY, {member: at.timestamp()})

        await transact(self._redis, replace, RETENTIONS_KEY)

    async def ids(self, owner: str, most: int | None = None) -> list[str]:
        """Return the ids of an owner's contexts, at most `most` (None: all)."""
        found = await self._redis.zrange(owner_contexts_key(owner), 0, most - 1 if most else -1)
        return list(map(unword, cast("list[str]", found)))

    async def forget(self, owner: str, context_id: str) -> bool:
        """Delete a context and its place in lists, unless it has a task; return whether it did."""
        key = context_info_key(owner, context_id)

        async def forget(pipeline: Pipeline) -> tuple[bool, bool]:
            fields = cast("list[str]", await pipeline.hkeys(key))
            has_task = any(name.startswith(_TASK) for name in fields)
            pipeline.multi()
            if not has_task:
                pipeline.zrem(owner_contexts_key(owner), word(context_id))
                pipeline.delete(key)
            return has_task, bool(fields)

        has_task, was_known = await transact(self._redis, forget, key)
        if not has_task:
            await self._redis.zrem(RETENTIONS_KEY, f"{word(owner)} {word(context_id)}")
        return was_known and not has_task

    async def forget_if_empty(
        self, owner: str, context_id: str, has_content: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Delete a context that has neither a task nor content; return whether it did.

        Content is stored where the deleting step cannot check it. So it is checked again afterwards, and the
        context is restored if content was added meanwhile.
        """
        key, listed = context_info_key(owner, context_id), owner_contexts_key(owner)
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(key)
            pipeline.ttl(key)
            pipeline.zscore(listed, word(context_id))
            fields, seconds, updated = await pipeline.execute()
        if await has_content() or not await self.forget(owner, context_id):
            return False
        if not await has_content():
            return True

        async def put_back(pipeline: Pipeline) -> None:
            is_known_again = await pipeline.exists(key)
            pipeline.multi()
            if not is_known_again:
                pipeline.hset(key, mapping=fields)
                pipeline.zadd(listed, {word(context_id): updated or 0})
                if seconds > 0:
                    pipeline.expire(key, seconds)

        await transact(self._redis, put_back, key)
        await self._redis.zadd(RETENTIONS_KEY, {f"{word(owner)} {word(context_id)}": time.time()})
        return False

    async def _change(self, owner: str, context_id: str, *fields: str) -> bool:
        """Set fields of the record of a context, if it exists; an empty value removes the field."""
        key, values = context_info_key(owner, context_id), dict(zip(fields[::2], fields[1::2], strict=True))

        async def change(pipeline: Pipeline) -> bool:
            is_there = bool(await pipeline.exists(key))
            pipeline.multi()
            for name, value in values.items() if is_there else ():
                pipeline.hset(key, name, value) if value else pipeline.hdel(key, name)
            return is_there

        return await transact(self._redis, change, key)

    async def _entries(self, key: str, after: IndexEntry | None, count: int) -> list[IndexEntry]:
        """Return contexts after an entry, the newest first; at equal times the greatest name first."""
        newest = after.score if after else "+inf"
        found = cast(
            "list[_Scored]",
            await self._redis.zrevrangebyscore(key, newest, "-inf", 0, count + _TOGETHER, withscores=True),
        )
        entries = (IndexEntry(int(score), name) for name, score in found)
        return [entry for entry in entries if after is None or entry < after][:count]

    def _context(self, owner: str, context_id: str, fields: Mapping[str, str], updated: int) -> ContextInfo:
        noted = (_NotedTask.parse(words) for name, words in fields.items() if name.startswith(_TASK))
        tasks = [task for task in noted if task]
        forgotten = tuple(fields.get(name, "0") for name in _USED)
        read, written, cost, unpriced = (
            sum(map(int, counts)) for counts in zip(forgotten, *(task.used for task in tasks), strict=True)
        )
        agents = Counter(task.agent for task in tasks)
        retention = fields.get("retention")
        return ContextInfo(
            owner=owner,
            context_id=context_id,
            title=self._title(owner, context_id, fields.get("title", "")),
            created_at=_time(fields["created"]),
            updated_at=_time(updated),
            count=sum(task.open != _MESSAGE for task in tasks),
            open_tasks=sum(task.open == _OPEN for task in tasks),
            agents=tuple(
                unword(name) for name in sorted(agents, key=lambda name: (agents[name], name), reverse=True)
            ),
            usage=Usage(input_tokens=read, output_tokens=written, cost=None if unpriced else cost / 1e9),
            retention=timedelta(seconds=int(retention)) if retention else None,
            tasks=_tasks(fields),
        )

    def _title(self, owner: str, context_id: str, sealed: str) -> str:
        try:
            purpose = title_purpose(owner, context_id)
            return json.loads(self._cipher.unseal_text(sealed, purpose)) if sealed else ""
        except EncryptionError as error:
            # A title that cannot be decrypted must not hide the other contexts.
            _log.warning("title of a context cannot be read", context_id=context_id, reason=str(error))
            return ""


def context_keys(owner: str, context_id: str) -> list[str]:
    """Return the keys of `enter.lua` for the context of a task."""
    return [owner_contexts_key(owner), context_info_key(owner, context_id)]


def artifacts_key(task: TaskIdentity) -> str:
    """Return the key that exists if the context of a task has artifacts."""
    return context_artifacts_key(context_key(task.owner, task.context_id))


_TOGETHER = 100
"""Maximum of contexts with the same microsecond as the last entry of a page."""


def _noting(
    task: TaskIdentity, before: _NotedTask | None, after: _NotedTask, title: str, seconds: int
) -> list[str | int]:
    opened = int(after.open == _OPEN) - int(before is not None and before.open == _OPEN)
    return [after.field, word(task.context_id), after.changed, "" if before else title, opened, seconds]


def _tasks(fields: Mapping[str, str]) -> Sequence[ContextTask]:
    found = list[ContextTask]()
    for name, noted in fields.items():
        if not name.startswith(_TASK) or not (task := _NotedTask.parse(noted)):
            continue
        task_id = name.removeprefix(_TASK)
        seconds = fields.get(_KEEP + task_id)
        found.append(
            ContextTask(
                task_id,
                unword(task.agent),
                _time(task.created),
                _time(task.changed),
                task.open == _OPEN,
                timedelta(seconds=int(seconds)) if seconds else None,
            )
        )
    return sorted(found, key=lambda task: (task.created_at, task.task_id))


def _time(microseconds: str | int) -> datetime:
    return datetime.fromtimestamp(int(microseconds) / 1_000_000, UTC)
