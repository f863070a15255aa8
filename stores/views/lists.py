"""Pages of tasks, from the lists that `task_views.lua` keeps."""

from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import cast

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import NOW, cipher_of
from everloop.stores.keys import APPROVALS_KEY_PREFIX, expiry_list_key, history_key, task_list_key, view_key
from everloop.stores.views.codec import ViewCodec
from everloop.stores.views.interface import (
    MAX_PAGE_BYTES,
    IndexEntry,
    TaskPage,
    TaskQuery,
    WaitingPage,
    WaitingQuery,
    WaitingTask,
    decode_page_token,
    encode_page_token,
)
from everloop.workflows.contract.tasks import TaskView

INDEX_SCRIPT = NOW + Path(__file__).with_name("task_index.lua").read_text(encoding="utf-8")
"""Functions that stand before the scripts that write and read the lists."""

_SCRIPT = INDEX_SCRIPT + Path(__file__).with_name("task_list.lua").read_text(encoding="utf-8")
_KEY_ENDS = (*view_key("*").split("*"), *history_key("*").split("*"))
_PURGE_SIZE = 500
"""As in `task_list.lua`."""

_Row = tuple[str, str, list[str], list[str], int]
"""Task id, time, fields of the view (name and value in turn), messages, bytes left out."""

_FIELDS_OF_WAITING = ("task", "status_run", "status")
"""Of a view, without history and artifacts."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class TaskLists:
    """Answers queries for tasks; a page costs the same however many tasks there are, whatever the filters.

    Of each owner there are lists of the tasks with one agent, and of each scope one of the tasks that wait
    for somebody with it, others than their owner.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._script = redis.register_script(_SCRIPT)

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return what `TaskViews.list_tasks` promises."""
        after = decode_page_token(query.page_token)
        total, rows, is_cut = await self._read(query, after)
        page = rows[: query.page_size]
        has_more = is_cut or len(rows) > len(page)
        views = (
            self._view(task_id, dict(zip(fields[::2], fields[1::2], strict=True)), messages)
            for task_id, _, fields, messages, _ in page
        )
        return TaskPage(
            views=tuple(view for view in views if view),
            total=total,
            next_page_token=encode_page_token(IndexEntry(int(page[-1][1]), page[-1][0])) if has_more else "",
            left_out={row[0]: row[-1] for row in page if row[-1]},
        )

    async def waiting_page(self, query: WaitingQuery) -> WaitingPage:
        """Return what `TaskViews.list_waiting` promises."""
        after = decode_page_token(query.page_token)
        wanted = query.page_size + 1  # one more shows that another page follows
        lists = [await self._entries(scope, after, wanted) for scope in query.scopes]
        entries = list(islice(merge(*lists), wanted))
        page = entries[: query.page_size]
        tasks = [
            WaitingTask(view, scope)
            for task_id, _, scope in (entry.task_id.partition(" ") for entry in page)
            if (view := await self._waiting_view(task_id))
        ]
        return WaitingPage(tuple(tasks), encode_page_token(page[-1]) if len(entries) > len(page) else "")

    async def _read(self, query: TaskQuery, after: IndexEntry | None) -> tuple[int, Sequence[_Row], bool]:
        """Return how many tasks match, those of the page, and whether they are fewer than were asked for.

        One more than the page holds shows that another page follows.
        """
        keys = [
            task_list_key(query.owner, query.agent_id, query.context_id, query.state or ""),
            task_list_key(query.owner, query.agent_id),
            expiry_list_key(query.owner, query.agent_id),
        ]
        arguments = [
            *((after.score, after.task_id) if after else ("", "")),
            "-inf" if query.updated_since is None else query.updated_since,
            query.page_size + 1,
            "all" if query.with_history is None else query.with_history,
            int(query.with_artifacts),
            *_KEY_ENDS,
            MAX_PAGE_BYTES,
        ]
        removed = _PURGE_SIZE
        total, rows, is_cut = 0, cast("Sequence[_Row]", ()), 0
        while removed == _PURGE_SIZE:  # a long list may have expired at once
            reply = await self._script(keys=keys, args=arguments)
            removed, total, rows, is_cut = cast("tuple[int, int, Sequence[_Row], int]", reply)
        return total, rows, bool(is_cut)

    async def _entries(self, scope: str, after: IndexEntry | None, wanted: int) -> list[IndexEntry]:
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

    async def _waiting_view(self, task_id: str) -> TaskView | None:
        kept = cast("list[str | None]", await self._redis.hmget(view_key(task_id), *_FIELDS_OF_WAITING))
        fields = zip(_FIELDS_OF_WAITING, kept, strict=True)
        return self._view(task_id, {name: value for name, value in fields if value is not None}, ())

    def _view(self, task_id: str, fields: Mapping[str, str], messages: Sequence[str]) -> TaskView | None:
        """Return a view; None if somebody has deleted it, or if it cannot be decrypted."""
        try:
            return ViewCodec(task_id, self._cipher).view(fields, messages)
        except EncryptionError as error:
            # One task that cannot be decrypted must not hide all others of its owner.
            _log.warning("task left out of a list", task_id=task_id, reason=str(error))
            return None
