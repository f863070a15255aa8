"""Lists of tasks: their update after a new status, and their pages.

Lists are stored in slots of their own and updated after the views, in a second step. The step may be
repeated; a late one changes nothing. If a process dies before the second step, the retry of the status, the
sweep or `everloop reindex` does it. The change from submitted to working is entered by the next reader of a
list.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from heapq import merge
from itertools import accumulate, islice
from typing import Any, NamedTuple, cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import NoScriptError
from structlog.typing import FilteringBoundLogger

from everloop.runtime.concurrency import for_each
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import cipher_of
from everloop.stores.keys import (
    APPROVALS_KEY_PREFIX,
    OPEN_TASKS_KEY,
    announced_tasks_key,
    head_key,
    owner_tasks_key,
)
from everloop.stores.lifetimes import MAX_TASK_BYTES
from everloop.stores.log.contexts import Contexts, artifacts_key, context_keys
from everloop.stores.log.log_codec import LogCodec, scopes_of, unword, word
from everloop.stores.log.log_types import (
    LISTED_FIELDS,
    MAX_PAGE_BYTES,
    IndexEntry,
    Listing,
    OpenTask,
    TaskPage,
    TaskQuery,
    WaitingPage,
    WaitingQuery,
    WaitingTask,
    decode_page_token,
    encode_page_token,
    listing_of,
    place_among_open,
    position_order,
)
from everloop.stores.log.reading import READ_SCRIPT, LogRead, as_read, log_keys, view_of
from everloop.stores.log.rows import ANY, Row, rows_of, time_word
from everloop.stores.scripts import remove_older, script, script_sha, scripts_text, sha_of
from everloop.workflows.contract.fold import TaskIdentity
from everloop.workflows.contract.tasks import TaskState, TaskView

_ENTER = scripts_text("log/enter.lua")
_ENTER_SHA = sha_of(_ENTER)

_EXPIRED = 500
"""Maximum of expired tasks that are removed from the lists at a time."""

_MOST_BEGUN = 200
"""Maximum of submitted tasks that are checked at a time before a page is read."""

_STATUS_FIELDS = ("task", "status_run", "event")
"""Fields of the head of a log that make a view without history and artifacts."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Row:
    """A task on a page. `size` is set if it is too large: its history and artifacts are left out."""

    entry: IndexEntry
    size: int = 0


class _Found(NamedTuple):
    """A task of a page. `view` is None if it cannot be decrypted."""

    row: _Row
    is_there: bool
    view: TaskView | None


class TaskLists:
    """Answers queries for tasks. The cost of a page depends on neither the number of tasks nor the filters.

    Each owner has lists of the tasks with each agent. Each scope has a list of the tasks that wait for an
    answer by its holders instead of their owner. `seconds` is the retention of views after the end,
    `context_ttl` the minimum retention of the record of a context after its last task has ended.
    """

    def __init__(self, redis: Redis, seconds: int, context_ttl: timedelta, contexts: Contexts) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._contexts = contexts
        self._seconds = seconds
        self._context_seconds = max(int(context_ttl.total_seconds()), seconds)

    async def enter(self, listing: Listing) -> None:
        """Enter the status of a view into the lists, unless they have a later one."""
        task, row, published = listing.task, self._row(listing), place_among_open(listing.revision)
        has_ended = listing.state.is_terminal

        def change(before: Row | None, field: str) -> _Change:
            is_newest = before is None or before.precedes(listing.revision)
            replaced = _replaced(before, row) if is_newest else _UNCHANGED
            return [*replaced, *self._contexts.noted(task, field, listing, self._context_seconds)]

        def follow(pipeline: Pipeline) -> None:
            self._contexts.ask_retention(pipeline, task)
            if has_ended:
                pipeline.zrem(OPEN_TASKS_KEY, listing.open_entry)
                pipeline.exists(artifacts_key(task))
            else:
                pipeline.zadd(OPEN_TASKS_KEY, {listing.open_entry: published}, gt=True)

        keys = [*owner_keys(task.owner), *context_keys(task.owner, task.context_id)]
        before, (retention, _, *has_artifacts) = await self._replace(keys, task.task_id, change, follow)
        if has_ended:
            await self._contexts.outlast(task, retention, has_artifacts=any(has_artifacts))
        if before and not before.precedes(listing.revision):  # too old to decide whether it is open
            await remove_older(self._redis, OPEN_TASKS_KEY, listing.open_entry, published)
        elif listing.scopes or (before and before.scopes):
            await self._list_waiting(listing, before.scopes if before else ())

    def _row(self, listing: Listing) -> Row:
        task, expiry = listing.task, position_order(listing.revision)[0] + self._seconds * 1000
        return Row(
            task.task_id,
            listing.revision,
            time_word(listing.at),
            listing.state.value,
            word(task.agent_id),
            word(task.context_id),
            time_word(expiry) if listing.state.is_terminal else "-",
            listing.scopes,
        )

    async def _replace(
        self,
        keys: Sequence[str],
        task_id: str,
        change: Callable[[Row | None, str], "_Change"],
        follow: Callable[[Pipeline], None] = lambda _: None,
    ) -> tuple[Row | None, list[Any]]:
        """Replace the rows of a task and its field in the record of its context.

        `change` gets the stored row and field and returns the replacement as arguments of `enter.lua`. Return
        the replaced row and the answers to the commands of `follow`.
        """
        expected = ["", ""]
        while True:
            row, field = expected
            before = Row.parse(row) if row else None
            arguments = [task_id, row, field, *change(before, field)]

            def ask(pipeline: Pipeline, arguments: Sequence[str | int] = arguments) -> None:
                _queue(pipeline, _ENTER_SHA, keys, arguments)
                follow(pipeline)

            found, *others = await self._do(ask)
            if found == expected:
                return before, others
            expected = found

    async def note_answer(self, task: TaskIdentity, title: str) -> None:
        """Note a message that was answered without a task in the record of its context."""

        def change(_: Row | None, field: str) -> _Change:
            return [*_UNCHANGED, *self._contexts.noted_answer(task, field, title, self._context_seconds)]

        keys = [*owner_keys(task.owner), *context_keys(task.owner, task.context_id)]
        await self._replace(keys, task.task_id, change)
        has_artifacts = bool(await self._redis.exists(artifacts_key(task)))
        await self._contexts.outlast(task, [], has_artifacts=has_artifacts)

    async def forget(self, owner: str, task_id: str) -> bool:
        """Remove a task in any state from all lists; return whether a list of its owner had it."""
        listed = await self._listed(owner, task_id)
        for scope in listed.scopes if listed else ():
            await self._redis.zrem(APPROVALS_KEY_PREFIX + scope, task_id)
        at = place_among_open(listed.revision if listed else "0")
        entries = cast("list[str]", await self._redis.zrangebyscore(OPEN_TASKS_KEY, at, at))
        opened = (entry for entry in entries if entry.startswith(f"{task_id} "))
        await self._redis.zrem(OPEN_TASKS_KEY, task_id, *opened)
        before, _ = await self._replace(owner_keys(owner), task_id, lambda row, _: _replaced(row, None))
        return before is not None

    async def _listed(self, owner: str, task_id: str) -> Row | None:
        rows = await self._redis.zrangebylex(owner_tasks_key(owner), f"[t {task_id} ", f"(t {task_id}!", 0, 1)
        return Row.parse(cast("str", rows[0])) if rows else None

    async def tasks_of(self, owner: str, most: int) -> dict[str, str]:
        """Return at most `most` listed tasks of an owner, each with its context."""
        rows = await self._redis.zrangebylex(owner_tasks_key(owner), "[t ", "(t!", 0, most)
        listed = map(Row.parse, cast("list[str]", rows))
        return {row.task_id: unword(row.context) for row in listed}

    async def _list_waiting(self, listing: Listing, before: Sequence[str]) -> None:
        """List a task under the scopes that it waits for, sorted by the start of the wait."""
        task_id = listing.task.task_id

        def ask(pipeline: Pipeline) -> None:
            for scope in {*before} - {*listing.scopes}:
                pipeline.zrem(APPROVALS_KEY_PREFIX + scope, task_id)
            for scope in listing.scopes:
                pipeline.zadd(APPROVALS_KEY_PREFIX + scope, {task_id: listing.at}, nx=scope in before)

        await self._do(ask)

    async def count_expired(self, owner: str) -> int:
        """Return the number of listed tasks of an owner whose views should have expired."""
        return int(await self._redis.zlexcount(owner_tasks_key(owner), *_until_now()))

    async def expired(self, owner: str) -> list[str]:
        """Return at most 500 tasks of an owner whose views should have expired."""
        rows = await self._redis.zrangebylex(owner_tasks_key(owner), *_until_now(), 0, _EXPIRED)
        return _task_ids(cast("list[str]", rows))

    async def drop_expired(self, owner: str, task_ids: Sequence[str]) -> int:
        """Remove tasks whose views have expired from the lists, and return their number.

        For the others, note the time of expiry.
        """

        def ask(pipeline: Pipeline) -> None:
            for task_id in task_ids:
                pipeline.hexists(head_key(task_id), "task")
                pipeline.pttl(head_key(task_id))

        found, at = await self._do(ask), _milliseconds()
        # A task without an expiry is open again; the lists are about to follow.
        lives = zip(task_ids, found[::2], found[1::2], strict=True)
        ends = {task_id: at + max(left, 1000) if is_there else 0 for task_id, is_there, left in lives}

        async def drop(task_id: str) -> int:
            def change(row: Row | None, _: str) -> _Change:
                end = ends[task_id]
                return _replaced(row, row._replace(expiry=time_word(end)) if row and end else None)

            before, _ = await self._replace(owner_keys(owner), task_id, change)
            return int(before is not None and not ends[task_id])

        return sum(await for_each(task_ids, drop))

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return the page of `TaskViews.list_tasks`."""
        after = decode_page_token(query.page_token)
        await self._list_begun(query)
        while True:
            total, entries, expired = await self._entries(query, after)
            rows = [_Row(entry) for entry in entries[: query.page_size]]
            found = await self._found(query, rows) if not expired else list[_Found]()
            expired += [each.row.entry.name for each in found if not each.is_there]
            if not expired:
                break
            # Otherwise the page would have gaps and a wrong total.
            await self.drop_expired(query.owner, expired)
        has_more = len(entries) > len(found)
        return TaskPage(
            views=tuple(each.view for each in found if each.view),
            total=total,
            next_page_token=encode_page_token(found[-1].row.entry) if has_more else "",
            left_out={each.row.entry.name: each.row.size for each in found if each.row.size},
        )

    async def waiting_page(self, query: WaitingQuery) -> WaitingPage:
        """Return the page of `TaskViews.list_waiting`."""
        after = decode_page_token(query.page_token)
        limit = query.page_size + 1  # one more shows that another page follows
        lists = [await self._waiting_entries(scope, after, limit) for scope in query.scopes]
        entries = list(islice(merge(*lists), limit))
        page = entries[: query.page_size]
        found = await self._fields([entry.name.partition(" ")[0] for entry in page], _STATUS_FIELDS)
        tasks: list[WaitingTask] = []
        for entry, fields in zip(page, found, strict=True):
            task_id, _, scope = entry.name.partition(" ")
            view = self._status_view(task_id, fields)
            if view and scope in scopes_of(view.status.questions):
                tasks.append(WaitingTask(view, scope))
            elif view or "task" not in fields:  # a process died before it updated the list
                await remove_older(self._redis, APPROVALS_KEY_PREFIX + scope, task_id, entry.score)
        return WaitingPage(tuple(tasks), encode_page_token(page[-1]) if len(entries) > len(page) else "")

    async def open_tasks(self, first: int, count: int) -> Sequence[OpenTask]:
        """Return the tasks of `TaskViews.list_open`; correct lists that differ from the views."""
        listed = cast(
            "list[tuple[str, float]]",
            await self._redis.zrange(OPEN_TASKS_KEY, first, first + count - 1, withscores=True),
        )
        found = await self._fields([entry.partition(" ")[0] for entry, _ in listed], LISTED_FIELDS)
        tasks: list[OpenTask] = []
        for (entry, published), fields in zip(listed, found, strict=True):
            listing = listing_of([fields.get(name) for name in LISTED_FIELDS])
            is_current = listing and entry == listing.open_entry  # otherwise it has opened again since
            if not is_current:
                await remove_older(self._redis, OPEN_TASKS_KEY, entry, int(published))
            if not listing:
                continue
            if not is_current or listing.state.is_terminal or place_among_open(listing.revision) != published:
                await self.enter(listing)
            if is_current and not listing.state.is_terminal:
                at, task_id = listing.at / 1_000_000, listing.task.task_id
                tasks.append(OpenTask(task_id, listing.state, listing.run_id, listing.version, at))
        return tasks

    async def _list_begun(self, query: TaskQuery) -> None:
        """Enter submitted tasks that work by now into the lists; of many, the newest and the oldest."""
        if query.state not in {None, TaskState.SUBMITTED, TaskState.WORKING}:
            return
        submitted = replace(query, state=TaskState.SUBMITTED, page_size=_MOST_BEGUN, updated_since=None)
        _, entries, _ = await self._entries(submitted, None)
        await self._enter_begun(entry.name for entry in entries)
        while len(entries) > _MOST_BEGUN and await self._enter_begun(await self._oldest(submitted)):
            pass

    async def _enter_begun(self, task_ids: Iterable[str]) -> int:
        """Enter those of these tasks that are no longer submitted into the lists; return their number."""
        found = await self._fields([*task_ids], LISTED_FIELDS)
        listings = (listing_of([fields.get(name) for name in LISTED_FIELDS]) for fields in found)
        for listing in (begun := [each for each in listings if each and each.state != TaskState.SUBMITTED]):
            await self.enter(listing)
        return len(begun)

    async def _oldest(self, query: TaskQuery) -> list[str]:
        key, place = owner_tasks_key(query.owner), _list_of(query)
        rows = await self._redis.zrangebylex(key, f"[{place} ", f"({place}!", 0, query.page_size)
        return _task_ids(cast("list[str]", rows))

    async def _entries(
        self, query: TaskQuery, after: IndexEntry | None
    ) -> tuple[int, list[IndexEntry], list[str]]:
        """Return the number of matching tasks, those of the page, and tasks whose views should have expired.

        If another page follows, its first entry is included.
        """
        key, place = owner_tasks_key(query.owner), _list_of(query)
        oldest, newest = f"[{place} {time_word(query.updated_since or 0)}", f"({place}!"
        begin = f"({place} {time_word(after.score)} {after.name}" if after else newest

        def ask(pipeline: Pipeline) -> None:
            pipeline.zlexcount(key, oldest, newest)
            pipeline.zrevrangebylex(key, begin, oldest, 0, query.page_size + 1)
            pipeline.zrangebylex(key, *_until_now(), 0, _EXPIRED)

        total, rows, expired = await self._do(ask)
        pairs = (row.split(" ")[-2:] for row in rows)
        return total, [IndexEntry(int(at), task_id) for at, task_id in pairs], _task_ids(expired)

    async def _found(self, query: TaskQuery, rows: Sequence[_Row]) -> list[_Found]:
        """Read the requested parts of these tasks, up to the size of a page."""
        if not query.with_artifacts and query.with_history == 0:
            heads = await self._fields([row.entry.name for row in rows], _STATUS_FIELDS)
            room = _count_fitting(sum(map(len, fields.values())) for fields in heads)
            pairs = zip(rows[:room], heads[:room], strict=True)
            return [
                _Found(row, "task" in fields, self._status_view(row.entry.name, fields))
                for row, fields in pairs
            ]
        sizes = [reply.size for reply in await self._read([row.entry.name for row in rows], -1)]
        rows = [replace(row, size=size) for row, size in zip(rows, sizes, strict=True)]
        rows = rows[: _count_fitting(0 if row.size > MAX_PAGE_BYTES else row.size for row in rows)]
        most = MAX_PAGE_BYTES if query.with_artifacts else MAX_TASK_BYTES
        replies = await self._read([row.entry.name for row in rows], most)
        return [self._wanted(query, row, reply) for row, reply in zip(rows, replies, strict=True)]

    def _wanted(self, query: TaskQuery, row: _Row, found: LogRead) -> _Found:
        view = self._decoded(row.entry.name, lambda codec: view_of(codec, found, query.with_history))
        if view and not query.with_artifacts:
            view = view.model_copy(update={"artifacts": ()})
            if _size_of(view) > MAX_PAGE_BYTES:
                return _Found(row, True, view.model_copy(update={"history": ()}))
        row = row if found.entries is None else replace(row, size=0)
        return _Found(row, found.identity is not None, view)

    async def _read(self, task_ids: Sequence[str], most: int) -> list[LogRead]:
        def ask(pipeline: Pipeline) -> None:
            for task_id in task_ids:
                _queue(pipeline, script_sha(READ_SCRIPT), log_keys(task_id), [most])

        return [as_read(reply) for reply in await self._do(ask)]

    async def _waiting_entries(self, scope: str, after: IndexEntry | None, limit: int) -> list[IndexEntry]:
        """Return the next entries of the list of a scope, sorted. The name is the task's id and the scope."""
        key, low = APPROVALS_KEY_PREFIX + scope, "-inf"
        found: list[object] = []
        if after is not None:  # entries of the same time with greater names
            found += await self._redis.zrangebyscore(key, after.score, after.score, withscores=True)
            low = f"({after.score}"
        found += await self._redis.zrangebyscore(key, low, "+inf", start=0, num=limit, withscores=True)
        scored = cast("list[tuple[str, float]]", found)
        entries = (IndexEntry(int(score), f"{task_id} {scope}") for task_id, score in scored)
        return sorted(entry for entry in entries if after is None or entry > after)

    async def _fields(self, task_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
        def ask(pipeline: Pipeline) -> None:
            for task_id in task_ids:
                pipeline.hmget(head_key(task_id), *names)

        return [_present(names, values) for values in await self._do(ask)]

    async def _do(self, ask: Callable[[Pipeline], None]) -> list[Any]:
        """Send commands for keys of several slots in one round trip. All of them may be repeated."""
        try:
            return await self._pipelined(ask)
        except NoScriptError:
            for text in (_ENTER, script(READ_SCRIPT)):
                await self._redis.script_load(text)
            return await self._pipelined(ask)

    async def _pipelined(self, ask: Callable[[Pipeline], None]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            ask(pipeline)
            return await pipeline.execute()

    def _status_view(self, task_id: str, fields: Mapping[str, str]) -> TaskView | None:
        return self._decoded(task_id, lambda codec: codec.status_view(*map(fields.get, _STATUS_FIELDS)))

    def _decoded(self, task_id: str, decode: Callable[[LogCodec], TaskView | None]) -> TaskView | None:
        """Return a view; None if it is unknown, or if it cannot be decrypted."""
        try:
            return decode(LogCodec(task_id, self._cipher))
        except EncryptionError as error:
            # A task that cannot be decrypted must not hide the other tasks of its owner.
            _log.warning("task left out of a list", task_id=task_id, reason=str(error))
            return None


def owner_keys(owner: str) -> list[str]:
    """Return the keys of an owner's rows and announced tasks."""
    return [owner_tasks_key(owner), announced_tasks_key(owner)]


_Change = list[str | int]
"""Arguments of `enter.lua` after the expected row and field."""

_UNCHANGED: _Change = ["", ""]


def _replaced(before: Row | None, after: Row | None) -> _Change:
    """Return the rows to remove, and those to add."""
    return ["\n".join(rows_of(row)) if row else "" for row in (before, after)]


def _list_of(query: TaskQuery) -> str:
    """Return the prefix of the rows of a list."""
    context = ANY if query.context_id is None else word(query.context_id)
    return f"l {word(query.agent_id)} {context} {query.state or ANY}"


def _until_now() -> tuple[str, str]:
    """Return the range of the rows of tasks whose views should have expired."""
    return "[e ", f"[e {time_word(_milliseconds())}"


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _task_ids(rows: Iterable[str]) -> list[str]:
    """Return the last words of rows."""
    return [row.rpartition(" ")[2] for row in rows]


def _queue(pipeline: Pipeline, sha: str, keys: Sequence[str], arguments: Sequence[str | int]) -> None:
    """Queue a script without the check for its existence that redis-py adds."""
    pipeline.execute_command("EVALSHA", sha, len(keys), *keys, *arguments)


def _present(names: Sequence[str], values: Sequence[str | None]) -> dict[str, str]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _count_fitting(sizes: Iterable[int]) -> int:
    return max(1, sum(size <= MAX_PAGE_BYTES for size in accumulate(sizes)))


def _size_of(view: TaskView) -> int:
    return sum(len(message.model_dump_json()) for message in view.history)
