"""The contexts of owners: what each is called, what its tasks are and have used, how long it is kept.

`lists.lua` counts their tasks in the step that lists them.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import NamedTuple, cast

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import (
    RETENTIONS_KEY,
    context_artifacts_key,
    context_info_key,
    head_key,
    log_key,
    owner_contexts_key,
    owner_tasks_key,
    registry_key,
    snapshot_key,
)
from everloop.stores.log.codec import seal_title, title_purpose, unword, word
from everloop.stores.log.interface import IndexEntry, decode_page_token, encode_page_token
from everloop.stores.retention import ARTIFACT_TTL
from everloop.workflows.contract.fold import TaskIdentity
from everloop.workflows.contract.messages import Usage
from everloop.workflows.contract.names import context_key

_TASK, _AGENT, _KEEP = "task:", "agent:", "keep:"
_HAS_TASK, _WITH_TITLE = -1, 2
_NUMBERS = ("tasks", "open", "input", "output", "cost", "unpriced")

MOST_LOOKED_AT = 1000
"""Contexts of which one page is made."""

_Scored = tuple[str, float]

_log: FilteringBoundLogger = structlog.get_logger(__name__)

_SET_IF_THERE = """
-- KEYS: what is known of a context. ARGV: fields to set and their values in turn; empty: none any more.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
for n = 1, #ARGV, 2 do
  if ARGV[n + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[n])
  else
    redis.call('HSET', KEYS[1], ARGV[n], ARGV[n + 1])
  end
end
return 1
"""

_PROLONG = """
-- KEYS: a key. ARGV: seconds that it is to live at least, unless it lives for ever, or is gone.
local left = redis.call('TTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[1]) then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
"""

_LOOK_AGAIN = """
-- KEYS: when contexts are looked at. ARGV: one of them, when it was due, and when it is next; empty: never.
local since = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not since or tonumber(since) ~= tonumber(ARGV[2]) then
  return
elseif ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
end
"""

_FORGET_TASK = """
-- KEYS: what is known of a context. ARGV: task id. What it has used stays counted: it was used.
-- Returns whether it was known, 2 if the title went with it.
local task = redis.call('HGET', KEYS[1], 'task:' .. ARGV[1])
redis.call('HDEL', KEYS[1], 'task:' .. ARGV[1], 'keep:' .. ARGV[1])
local is_titled = redis.call('HGET', KEYS[1], 'titled') == ARGV[1]
if is_titled then
  redis.call('HDEL', KEYS[1], 'title', 'titled')
end
if not task then
  return 0
end
local agent, open = task:match('^%S+ %S+ (%S+) (%S+)')
if open ~= '-' then  -- a message that was answered without a task is none
  redis.call('HINCRBY', KEYS[1], 'tasks', -1)
end
if open == '1' then  -- to Redis before 7.2 a negated 0 is -0, which it takes for no number
  redis.call('HINCRBY', KEYS[1], 'open', -1)
end
if redis.call('HINCRBY', KEYS[1], 'agent:' .. agent, -1) <= 0 then
  redis.call('HDEL', KEYS[1], 'agent:' .. agent)
end
return is_titled and 2 or 1
"""

_FORGET = """
-- KEYS: what is known of a context, contexts of its owner. ARGV: its place among them.
-- Returns 1 if it was removed, -1 if it has a task, and stays.
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if name:sub(1, 5) == 'task:' then
    return -1
  end
end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])
"""

_PUT_BACK = """
-- KEYS: what is known of a context, contexts of its owner. ARGV: its place among them, seconds that it is
-- known (-1: for ever), its fields and their values in turn. One that is known again stays as it is.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
  if ARGV[2] ~= '-1' then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
  end
  redis.call('ZADD', KEYS[2], redis.call('HGET', KEYS[1], 'updated'), ARGV[1])
end
"""


@dataclass(frozen=True)
class ContextTask:
    """A task of a context, or a message that was answered without one, while the context is known."""

    task_id: str
    agent_id: str
    created_at: datetime
    changed_at: datetime
    is_open: bool
    retention: timedelta | None = None
    """How long it is kept after its end; None: as the settings say."""


@dataclass(frozen=True)
class Context:
    """What is known of a context. `retention`: how long all of it is kept after the last status of a task.

    `open_tasks` have not ended.
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
        """Until when it is kept; None: its settings say so, or a task of it has not ended."""
        return None if self.retention is None or self.open_tasks else self.updated_at + self.retention


@dataclass(frozen=True)
class ContextPage:
    """Contexts, those first whose tasks changed last; `next_page_token` is empty at the end."""

    contexts: tuple[Context, ...]
    next_page_token: str


class Due(NamedTuple):
    """A context at which somebody has to look, `since` when in seconds."""

    owner: str
    context_id: str
    since: float


class Contexts:
    """Lists contexts and changes what people say of them. Safe to call from several processes at once.

    `artifact_ttl` is how long artifacts are kept: a context that has some is known for so long (default 30
    days).
    """

    def __init__(self, redis: Redis, artifact_ttl: timedelta = ARTIFACT_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._artifact_ttl = artifact_ttl
        self._set = redis.register_script(_SET_IF_THERE)
        self._prolong = redis.register_script(_PROLONG)
        self._forget_task = redis.register_script(_FORGET_TASK)
        self._forget = redis.register_script(_FORGET)
        self._put_back = redis.register_script(_PUT_BACK)
        self._look_again = redis.register_script(_LOOK_AGAIN)

    async def page(self, owner: str, size: int, token: str = "", query: str = "") -> ContextPage:
        """Return contexts of an owner; with `query` those in whose title it stands, in any case.

        At most 1,000 are looked at: then the page may have fewer than `size`, and is not the last one.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """
        key, found, wanted = owner_contexts_key(owner), list[Context](), query.casefold()
        at = decode_page_token(token)
        for _ in range(MOST_LOOKED_AT // size + 1):
            entries = await self._entries(key, at, size + 1)
            for number, at in enumerate(entries[:size]):
                context = await self.get(owner, unword(at.name))
                if context is None:
                    await self._redis.zrem(key, at.name)
                elif wanted in context.title.casefold():
                    found.append(context)
                if len(found) == size:
                    has_more = number + 1 < len(entries)
                    return ContextPage(tuple(found), encode_page_token(at) if has_more else "")
            if len(entries) <= size:
                return ContextPage(tuple(found), "")
        return ContextPage(tuple(found), encode_page_token(at) if at else "")

    async def get(self, owner: str, context_id: str) -> Context | None:
        """Return a context with its tasks; None if nothing is known of it."""
        fields = cast("Mapping[str, str]", await self._redis.hgetall(context_info_key(owner, context_id)))
        return self._context(owner, context_id, fields) if "updated" in fields else None

    async def set_title(self, owner: str, context_id: str, title: str) -> bool:
        """Give a context another title; return whether there is one."""
        sealed = seal_title(title, owner, context_id, self._cipher)
        return await self._change(owner, context_id, "title", sealed, "titled", "")

    async def set_retention(
        self, owner: str, context_id: str, retention: timedelta | None, task_id: str = ""
    ) -> bool:
        """Say how long a context, or one of its tasks, is kept; None: as the settings say.

        Return whether there is such a context. The housekeeping looks at it from now on.
        """
        name = _KEEP + task_id if task_id else "retention"
        seconds = str(int(retention.total_seconds())) if retention else ""
        member = f"{word(owner)} {word(context_id)}"
        # First, so that whoever dies in between leaves nothing that nobody looks at; again, because somebody
        # may have looked meanwhile.
        await self._redis.zadd(RETENTIONS_KEY, {member: time.time()})
        is_known = await self._change(owner, context_id, name, seconds)
        await self._redis.zadd(RETENTIONS_KEY, {member: time.time()})
        return is_known

    async def forget_task(self, owner: str, context_id: str, task_id: str) -> bool:
        """Let a context know no more of a task; return whether it did.

        If its title is how that task began, it gets another one.
        """
        keys = [context_info_key(owner, context_id)]
        known = int(await self._forget_task(keys=keys, args=[task_id]))
        context = await self.get(owner, context_id) if known == _WITH_TITLE else None
        if context and not context.title:
            for task in context.tasks:
                if title := cast("str | None", await self._redis.hget(head_key(task.task_id), "title")):
                    await self._change(owner, context_id, "title", title, "titled", task.task_id)
                    break
        return bool(known)

    async def prune(self, owner: str) -> None:
        """Take those out of the list of an owner of which Redis has forgotten all."""
        key = owner_contexts_key(owner)
        for context_id in await self.ids(owner):
            if not await self._redis.exists(context_info_key(owner, context_id)):
                await self._redis.zrem(key, word(context_id))

    async def prolong(self, owner: str, context_id: str, left: timedelta, task_ids: Iterable[str]) -> None:
        """Let what is known of a context, and of some of its tasks, live for at least so long from now on."""
        keys = [context_info_key(owner, context_id), owner_contexts_key(owner), owner_tasks_key(owner)]
        for task_id in task_ids:
            keys += [registry_key(task_id), head_key(task_id), snapshot_key(task_id), log_key(task_id)]
        for key in keys:
            await self._prolong(keys=[key], args=[int(left.total_seconds())])

    async def outlast(self, task: TaskIdentity, retention: str | None, *, has_artifacts: bool) -> None:
        """Let a task that has just ended live as long as somebody said, and its context as its artifacts do.

        `retention` is in seconds. The housekeeping would see to that, too, but later than events expire.
        """
        if retention:
            await self.prolong(task.owner, task.context_id, timedelta(seconds=int(retention)), [task.task_id])
        if has_artifacts:
            key, seconds = context_info_key(task.owner, task.context_id), self._artifact_ttl.total_seconds()
            await self._prolong(keys=[key], args=[int(seconds)])

    async def due(self, most: int) -> list[Due]:
        """Return those at which somebody has to look now."""
        found = await self._redis.zrangebyscore(RETENTIONS_KEY, "-inf", time.time(), 0, most, withscores=True)
        scored = cast("list[_Scored]", found)
        pairs = ((*map(unword, member.split(" ")),) for member, _ in scored)
        return [Due(owner, name, since) for (owner, name), (_, since) in zip(pairs, scored, strict=True)]

    async def look_again(self, due: Due, at: datetime | None) -> None:
        """Let a context be looked at then; None: never, because nobody has said how long it is kept.

        If somebody has said so since it was due, it stays due.
        """
        member = f"{word(due.owner)} {word(due.context_id)}"
        following = "" if at is None else at.timestamp()
        await self._look_again(keys=[RETENTIONS_KEY], args=[member, due.since, following])

    async def ids(self, owner: str, most: int | None = None) -> list[str]:
        """Return the ids of contexts of an owner, of all or so many at most."""
        found = await self._redis.zrange(owner_contexts_key(owner), 0, most - 1 if most else -1)
        return list(map(unword, cast("list[str]", found)))

    async def forget(self, owner: str, context_id: str) -> bool:
        """Forget a context and its place in lists, unless it has a task; return whether it did."""
        keys = [context_info_key(owner, context_id), owner_contexts_key(owner)]
        removed = int(await self._forget(keys=keys, args=[word(context_id)]))
        if removed != _HAS_TASK:
            await self._redis.zrem(RETENTIONS_KEY, f"{word(owner)} {word(context_id)}")
        return removed > 0

    async def forget_if_empty(
        self, owner: str, context_id: str, has_content: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Forget a context that has neither a task nor content; return whether it did.

        Content is kept where no step of ours can see it: it is asked for again afterwards, and a context in
        which something was put meanwhile is brought back.
        """
        keys = [context_info_key(owner, context_id), owner_contexts_key(owner)]
        known = cast("Mapping[str, str]", await self._redis.hgetall(keys[0]))
        seconds = await self._redis.ttl(keys[0])
        if await has_content() or not await self.forget(owner, context_id):
            return False
        if not await has_content():
            return True
        await self._put_back(keys=keys, args=[word(context_id), seconds, *chain.from_iterable(known.items())])
        await self._redis.zadd(RETENTIONS_KEY, {f"{word(owner)} {word(context_id)}": time.time()})
        return False

    async def _change(self, owner: str, context_id: str, *fields: str) -> bool:
        return bool(await self._set(keys=[context_info_key(owner, context_id)], args=list(fields)))

    async def _entries(self, key: str, after: IndexEntry | None, count: int) -> list[IndexEntry]:
        """Return contexts behind a place, the newest first; of one time the greatest name is the first."""
        newest = after.score if after else "+inf"
        found = cast(
            "list[_Scored]",
            await self._redis.zrevrangebyscore(key, newest, "-inf", 0, count + _TOGETHER, withscores=True),
        )
        entries = (IndexEntry(int(score), name) for name, score in found)
        return [entry for entry in entries if after is None or entry < after][:count]

    def _context(self, owner: str, context_id: str, fields: Mapping[str, str]) -> Context:
        numbers = {name: int(fields.get(name, 0)) for name in _NUMBERS}
        cost = None if numbers["unpriced"] > 0 else numbers["cost"] / 1e9
        retention = fields.get("retention")
        agents = [(int(count), name) for name, count in fields.items() if name.startswith(_AGENT)]
        return Context(
            owner=owner,
            context_id=context_id,
            title=self._title(owner, context_id, fields.get("title", "")),
            created_at=_time(fields["created"]),
            updated_at=_time(fields["updated"]),
            count=numbers["tasks"],
            open_tasks=numbers["open"],
            agents=tuple(unword(name.removeprefix(_AGENT)) for _, name in sorted(agents, reverse=True)),
            usage=Usage(input_tokens=numbers["input"], output_tokens=numbers["output"], cost=cost),
            retention=timedelta(seconds=int(retention)) if retention else None,
            tasks=_tasks(fields),
        )

    def _title(self, owner: str, context_id: str, kept: str) -> str:
        try:
            purpose = title_purpose(owner, context_id)
            return json.loads(self._cipher.unseal_text(kept, purpose)) if kept else ""
        except EncryptionError as error:
            # One that cannot be decrypted must not hide all others.
            _log.warning("title of a context cannot be read", context_id=context_id, reason=str(error))
            return ""


def context_keys(owner: str, context_id: str) -> list[str]:
    """Return the keys that `lists.lua` takes besides where a context is told of a task."""
    return [owner_contexts_key(owner), context_info_key(owner, context_id)]


def artifacts_key(task: TaskIdentity) -> str:
    """Return the key that is there if the context of a task has artifacts."""
    return context_artifacts_key(context_key(task.owner, task.context_id))


_TOGETHER = 100
"""Contexts of one microsecond that may stand before a place."""


def _tasks(fields: Mapping[str, str]) -> Sequence[ContextTask]:
    found = list[ContextTask]()
    for name, words in fields.items():
        if not name.startswith(_TASK):
            continue
        task_id, (created, changed, agent, is_open, *_) = name.removeprefix(_TASK), words.split(" ")
        kept = fields.get(_KEEP + task_id)
        retention = timedelta(seconds=int(kept)) if kept else None
        found.append(
            ContextTask(task_id, unword(agent), _time(created), _time(changed), is_open == "1", retention)
        )
    return sorted(found, key=lambda task: (task.created_at, task.task_id))


def _time(microseconds: str) -> datetime:
    return datetime.fromtimestamp(int(microseconds) / 1_000_000, UTC)
