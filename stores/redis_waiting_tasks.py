"""Tasks that wait for others than their owner, from the lists of `task_views.lua`: one for each scope."""

from heapq import merge
from itertools import islice
from typing import cast

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from everloop.stores.encryption import EncryptionError
from everloop.stores.page_token import IndexEntry, decode_page_token, encode_page_token
from everloop.stores.redis_connection import cipher_of
from everloop.stores.redis_view_codec import ViewCodec
from everloop.stores.task_views import WaitingPage, WaitingQuery, WaitingTask
from everloop.workflows.contract.names import APPROVALS_KEY_PREFIX, view_key
from everloop.workflows.contract.tasks import TaskView

_FIELDS = ("task", "status_run", "status")
"""Of a view, without history and artifacts."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class RedisWaitingTasks:
    """Answers which tasks wait for somebody with a scope; a page costs the same however many there are."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def page(self, query: WaitingQuery) -> WaitingPage:
        """Return what `TaskViews.list_waiting` promises."""
        after = decode_page_token(query.page_token)
        wanted = query.page_size + 1  # one more shows that another page follows
        lists = [await self._entries(scope, after, wanted) for scope in query.scopes]
        entries = list(islice(merge(*lists), wanted))
        page = entries[: query.page_size]
        views = [(await self._view(entry.task_id.partition(" ")[0]), entry) for entry in page]
        return WaitingPage(
            tuple(WaitingTask(view, entry.task_id.partition(" ")[2]) for view, entry in views if view),
            encode_page_token(page[-1]) if len(entries) > len(page) else "",
        )

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

    async def _view(self, task_id: str) -> TaskView | None:
        """Return a view; None if somebody has deleted it, or if it cannot be decrypted."""
        kept = cast("list[str | None]", await self._redis.hmget(view_key(task_id), *_FIELDS))
        fields = {name: value for name, value in zip(_FIELDS, kept, strict=True) if value is not None}
        try:
            return ViewCodec(task_id, self._cipher).view(fields, ())
        except EncryptionError as error:
            _log.warning("task left out of a list", task_id=task_id, reason=str(error))
            return None
