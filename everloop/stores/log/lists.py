"""Lists of tasks: what a new status changes in them, and pages of what they hold.

They lie in slots of their own and follow the views in a second step, which may be repeated; one that comes
late changes nothing. What a process left undone that died in between is done by whoever publishes the status
again, by the sweep, or by `everloop reindex`. That a task begins to work is told by whoever reads a list.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from heapq import merge
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import NoScriptError
from structlog.typing import FilteringBoundLogger

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import NOW, REMOVE_OLDER, cipher_of
from everloop.stores.keys import (
    APPROVALS_KEY_PREFIX,
    OPEN_TASKS_KEY,
    announced_tasks_key,
    head_key,
    owner_tasks_key,
)
from everloop.stores.log.codec import LogCodec, scopes_of, unword, word
from everloop.stores.log.contexts import Contexts, artifacts_key, context_keys
from everloop.stores.log.interface import (
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
)
from everloop.stores.log.reading import READ_SCRIPT, LogRead, as_read, log_keys, view_of
from everloop.stores.retention import MAX_TASK_BYTES
from everloop.stores.scripts import script, script_sha
from everloop.workflows.contract.fold import TaskIdentity, microseconds
from everloop.workflows.contract.tasks import TaskState, TaskView

LISTS_SCRIPT = NOW + Path(__file__).with_name("lists.lua").read_text(encoding="utf-8")
"""Whatever is done with the tasks of one owner."""

_ANY = "*"
"""Stands in a row for any name; no word of a name is this."""

_NOTHING_USED = "0 0 0 0"

_MOST_BEGUN = 200
"""So many tasks that were submitted are looked at at once before a page is read."""

_PLACES = 10**16
"""Times in rows have so many digits."""

_STATUS_FIELDS = ("task", "status_run", "event")
"""Of the head of a log: its view without history and artifacts."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Row:
    """A task on a page; of one that is too large, its size: history and artifacts are left out."""

    entry: IndexEntry
    size: int = 0


class _Found(NamedTuple):
    """A task of a page; one that cannot be decrypted has no view."""

    row: _Row
    is_there: bool
    view: TaskView | None


class TaskLists:
    """Answers queries for tasks; a page costs the same however many tasks there are, whatever the filters.

    Of each owner there are lists of the tasks with one agent, and of each scope one of the tasks that wait
    for somebody with it, others than their owner. `seconds` is how long views are kept after the end,
    `context_ttl` at least what is known of a context after its last task has ended.
    """

    def __init__(self, redis: Redis, seconds: int, context_ttl: timedelta, contexts: Contexts) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._contexts = contexts
        self._seconds = seconds
        self._context_seconds = max(int(context_ttl.total_seconds()), seconds)
        self._script = redis.register_script(LISTS_SCRIPT)
        self._remove_older = redis.register_script(REMOVE_OLDER)

    async def enter(self, listing: Listing) -> None:
        """Let the lists say what a view says; nothing changes where they know a later status."""
        task = listing.task
        keys = [*owner_keys(task.owner), *context_keys(task.owner, task.context_id)]
        arguments = self._entering(listing)
        published = place_among_open(listing.revision)

        def ask(pipeline: Pipeline) -> None:
            _queue(pipeline, self._script.sha, keys, arguments)
            if listing.state.is_terminal:
                pipeline.zrem(OPEN_TASKS_KEY, listing.open_entry)
                pipeline.exists(artifacts_key(task))
            else:
                pipeline.zadd(OPEN_TASKS_KEY, {listing.open_entry: published}, gt=True)

        (is_newest, before, retention), _, *has_artifacts = await self._do(ask)
        if listing.state.is_terminal:
            await self._contexts.outlast(task, retention, has_artifacts=any(has_artifacts))
        if not is_newest:  # nor does this say whether it is open
            await self._remove_older(keys=[OPEN_TASKS_KEY], args=[listing.open_entry, published])
        elif before or listing.scopes:
            await self._list_waiting(listing, before.split())

    def _entering(self, listing: Listing) -> list[str | int]:
        task = listing.task
        return [
            "enter",
            task.task_id,
            listing.revision,
            _place(listing.at),
            listing.state.value,
            word(task.agent_id),
            word(task.context_id),
            self._seconds * 1000,
            " ".join(listing.scopes),
            listing.title,
            *(listing.used or _NOTHING_USED).split(),
            self._context_seconds,
        ]

    async def note_answer(self, task: TaskIdentity, title: str) -> None:
        """Let its context know of a message that was answered without a task."""
        keys = [*owner_keys(task.owner), *context_keys(task.owner, task.context_id)]
        arguments = [
            "answered",
            task.task_id,
            _place(microseconds(task.created_at)),
            word(task.agent_id),
            word(task.context_id),
            title,
            self._context_seconds,
        ]
        await self._script(keys=keys, args=arguments)
        has_artifacts = bool(await self._redis.exists(artifacts_key(task)))
        await self._contexts.outlast(task, None, has_artifacts=has_artifacts)

    async def forget(self, owner: str, task_id: str) -> bool:
        """Take a task out of all lists, whatever became of it; return whether its owner's had it."""
        known = str(await self._script(keys=owner_keys(owner), args=["listed", task_id]))
        revision, *scopes = known.split() or ("0",)
        for scope in scopes:
            await self._redis.zrem(APPROVALS_KEY_PREFIX + scope, task_id)
        at = place_among_open(revision)
        entries = cast("list[str]", await self._redis.zrangebyscore(OPEN_TASKS_KEY, at, at))
        opened = (entry for entry in entries if entry.startswith(f"{task_id} "))
        await self._redis.zrem(OPEN_TASKS_KEY, task_id, *opened)
        was_listed = await self._script(keys=owner_keys(owner), args=["remove", task_id])
        return bool(was_listed)

    async def tasks_of(self, owner: str, most: int) -> dict[str, str]:
        """Return tasks that are listed of an owner, so many at most, each with its context."""
        rows = await self._redis.zrangebylex(owner_tasks_key(owner), "[t ", "(t!", 0, most)
        words = (row.split(" ") for row in cast("list[str]", rows))
        return {task_id: unword(context_id) for _, task_id, _, _, _, _, context_id, *_ in words}

    async def _list_waiting(self, listing: Listing, before: Sequence[str]) -> None:
        """List a task for those whom it asks, by the time since when."""
        task_id = listing.task.task_id

        def ask(pipeline: Pipeline) -> None:
            for scope in {*before} - {*listing.scopes}:
                pipeline.zrem(APPROVALS_KEY_PREFIX + scope, task_id)
            for scope in listing.scopes:
                pipeline.zadd(APPROVALS_KEY_PREFIX + scope, {task_id: listing.at}, nx=scope in before)

        await self._do(ask)

    async def drop_expired(self, owner: str, task_ids: Sequence[str]) -> int:
        """Take tasks out of the lists whose views are gone, and return how many.

        Of others note when they will be.
        """

        def ask(pipeline: Pipeline) -> None:
            for task_id in task_ids:
                pipeline.hexists(head_key(task_id), "task")
                pipeline.pttl(head_key(task_id))

        found = await self._do(ask)
        arguments: list[str | int] = ["drop_expired"]
        for task_id, is_there, milliseconds in zip(task_ids, found[::2], found[1::2], strict=True):
            # One without an end goes on, which the lists have yet to hear.
            arguments += [task_id, max(milliseconds, 1000) if is_there else ""]
        return int(await self._script(keys=owner_keys(owner), args=arguments))

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return what `TaskViews.list_tasks` promises."""
        after = decode_page_token(query.page_token)
        await self._list_begun(query)
        while True:
            total, entries, expired = await self._entries(query, after)
            rows = [_Row(entry) for entry in entries[: query.page_size]]
            found = await self._found(query, rows) if not expired else list[_Found]()
            expired += [each.row.entry.name for each in found if not each.is_there]
            if not expired:
                break
            # Or else the page had gaps, and the total was wrong.
            await self.drop_expired(query.owner, expired)
        has_more = len(entries) > len(found)
        return TaskPage(
            views=tuple(each.view for each in found if each.view),
            total=total,
            next_page_token=encode_page_token(found[-1].row.entry) if has_more else "",
            left_out={each.row.entry.name: each.row.size for each in found if each.row.size},
        )

    async def waiting_page(self, query: WaitingQuery) -> WaitingPage:
        """Return what `TaskViews.list_waiting` promises."""
        after = decode_page_token(query.page_token)
        wanted = query.page_size + 1  # one more shows that another page follows
        lists = [await self._waiting_entries(scope, after, wanted) for scope in query.scopes]
        entries = list(islice(merge(*lists), wanted))
        page = entries[: query.page_size]
        found = await self._fields([entry.name.partition(" ")[0] for entry in page], _STATUS_FIELDS)
        tasks: list[WaitingTask] = []
        for entry, fields in zip(page, found, strict=True):
            task_id, _, scope = entry.name.partition(" ")
            view = self._status_view(task_id, fields)
            if view and scope in scopes_of(view.status.questions):
                tasks.append(WaitingTask(view, scope))
            elif view or "task" not in fields:  # somebody died before the list heard of it
                await self._remove_older(keys=[APPROVALS_KEY_PREFIX + scope], args=[task_id, entry.score])
        return WaitingPage(tuple(tasks), encode_page_token(page[-1]) if len(entries) > len(page) else "")

    async def open_tasks(self, first: int, count: int) -> Sequence[OpenTask]:
        """Return what `TaskViews.list_open` promises; put lists right that say something else than views."""
        listed = cast(
            "list[tuple[str, float]]",
            await self._redis.zrange(OPEN_TASKS_KEY, first, first + count - 1, withscores=True),
        )
        found = await self._fields([entry.partition(" ")[0] for entry, _ in listed], LISTED_FIELDS)
        tasks: list[OpenTask] = []
        for (entry, published), fields in zip(listed, found, strict=True):
            listing = listing_of([fields.get(name) for name in LISTED_FIELDS])
            is_known = listing and entry == listing.open_entry  # or else it has opened again since
            if not is_known:
                await self._remove_older(keys=[OPEN_TASKS_KEY], args=[entry, int(published)])
            if not listing:
                continue
            if not is_known or listing.state.is_terminal or place_among_open(listing.revision) != published:
                await self.enter(listing)
            if is_known and not listing.state.is_terminal:
                at, task_id = listing.at / 1_000_000, listing.task.task_id
                tasks.append(OpenTask(task_id, listing.state, listing.run_id, listing.version, at))
        return tasks

    async def _list_begun(self, query: TaskQuery) -> None:
        """Let the lists say which tasks work that were submitted, of many the newest and the oldest."""
        if query.state not in {None, TaskState.SUBMITTED, TaskState.WORKING}:
            return
        submitted = replace(query, state=TaskState.SUBMITTED, page_size=_MOST_BEGUN, updated_since=None)
        _, entries, _ = await self._entries(submitted, None)
        await self._enter_begun(entry.name for entry in entries)
        while len(entries) > _MOST_BEGUN and await self._enter_begun(await self._oldest(submitted)):
            pass

    async def _enter_begun(self, task_ids: Iterable[str]) -> int:
        """List those of submitted tasks that are none any more; return how many."""
        found = await self._fields([*task_ids], LISTED_FIELDS)
        listings = (listing_of([fields.get(name) for name in LISTED_FIELDS]) for fields in found)
        for listing in (begun := [each for each in listings if each and each.state != TaskState.SUBMITTED]):
            await self.enter(listing)
        return len(begun)

    async def _oldest(self, query: TaskQuery) -> list[str]:
        arguments = ["oldest", *_list_of(query), query.page_size]
        return cast("list[str]", await self._script(keys=owner_keys(query.owner), args=arguments))

    async def _entries(
        self, query: TaskQuery, after: IndexEntry | None
    ) -> tuple[int, list[IndexEntry], list[str]]:
        """Return how many tasks match, those of the page, and tasks whose views should have expired.

        One more than the page holds shows that another page follows.
        """
        arguments = [
            "page",
            *_list_of(query),
            *((_place(after.score), after.name) if after else ("", "")),
            _place(query.updated_since or 0),
            query.page_size + 1,
        ]
        reply = await self._script(keys=owner_keys(query.owner), args=arguments)
        total, rows, expired = cast("tuple[int, list[str], list[str]]", reply)
        pairs = (row.split(" ") for row in rows)
        return total, [IndexEntry(int(at), task_id) for at, task_id in pairs], expired

    async def _found(self, query: TaskQuery, rows: Sequence[_Row]) -> list[_Found]:
        """Read as many of these tasks as a page has room for, what is wanted of each."""
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

    async def _waiting_entries(self, scope: str, after: IndexEntry | None, wanted: int) -> list[IndexEntry]:
        """Return the next entries of the list of a scope, sorted; each names the task and the scope."""
        key, low = APPROVALS_KEY_PREFIX + scope, "-inf"
        found: list[object] = []
        if after is not None:  # of the same time, those that come behind it
            found += await self._redis.zrangebyscore(key, after.score, after.score, withscores=True)
            low = f"({after.score}"
        found += await self._redis.zrangebyscore(key, low, "+inf", start=0, num=wanted, withscores=True)
        scored = cast("list[tuple[str, float]]", found)
        entries = (IndexEntry(int(score), f"{task_id} {scope}") for task_id, score in scored)
        return sorted(entry for entry in entries if after is None or entry > after)

    async def _fields(self, task_ids: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
        def ask(pipeline: Pipeline) -> None:
            for task_id in task_ids:
                pipeline.hmget(head_key(task_id), *names)

        return [_present(names, kept) for kept in await self._do(ask)]

    async def _do(self, ask: Callable[[Pipeline], None]) -> list[Any]:
        """Ask in one round trip what may lie in many slots; everything may be repeated."""
        try:
            return await self._asked(ask)
        except NoScriptError:
            for text in (self._script.script, script(READ_SCRIPT)):
                await self._redis.script_load(text)
            return await self._asked(ask)

    async def _asked(self, ask: Callable[[Pipeline], None]) -> list[Any]:
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
            # One task that cannot be decrypted must not hide all others of its owner.
            _log.warning("task left out of a list", task_id=task_id, reason=str(error))
            return None


def owner_keys(owner: str) -> list[str]:
    """Return the keys that `LISTS_SCRIPT` takes."""
    return [owner_tasks_key(owner), announced_tasks_key(owner)]


def _list_of(query: TaskQuery) -> tuple[str, str, str]:
    context = _ANY if query.context_id is None else word(query.context_id)
    return word(query.agent_id), context, query.state or _ANY


def _queue(pipeline: Pipeline, sha: str, keys: Sequence[str], arguments: Sequence[str | int]) -> None:
    """Queue a script; redis-py's own way asks for its existence first."""
    pipeline.execute_command("EVALSHA", sha, len(keys), *keys, *arguments)


def _place(at: int) -> str:
    return f"{min(max(at, 0), _PLACES - 1):016d}"


def _present(names: Sequence[str], kept: Sequence[str | None]) -> dict[str, str]:
    return {name: value for name, value in zip(names, kept, strict=True) if value is not None}


def _count_fitting(sizes: Iterable[int]) -> int:
    return max(1, sum(size <= MAX_PAGE_BYTES for size in accumulate(sizes)))


def _size_of(view: TaskView) -> int:
    return sum(len(message.model_dump_json()) for message in view.history)
