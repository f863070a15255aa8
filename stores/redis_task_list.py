"""Pages of the tasks of an owner, from the indexes that `task_views.lua` keeps."""

from collections.abc import AsyncIterator, Sequence
from typing import cast

from redis.asyncio import Redis

from stores.page_token import IndexEntry, decode_page_token, encode_page_token
from stores.redis_view_codec import decode_view
from stores.task_views import TaskPage, TaskQuery
from workflows.contract.names import context_index_key, history_key, owner_index_key, view_key
from workflows.contract.tasks import TaskState, TaskView

_SCAN_SIZE = 200

_FORGET_EXPIRED = """
-- KEYS: index, views. ARGV: task ids. A view that came back meanwhile keeps its place in the index.
for n, id in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[n + 1], 'task') == 0 then
    redis.call('ZREM', KEYS[1], id)
  end
end
"""


class RedisTaskList:
    """Answers task queries; one without a state costs the same however many tasks there are."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._forget_expired = redis.register_script(_FORGET_EXPIRED)

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return what `TaskViews.list_tasks` promises; `total` may still count views that expired lately."""
        index = _Index(self._redis, query)
        after = decode_page_token(query.page_token)
        if query.state is None:
            total = await index.count()
            entries = index.walk(after, query.page_size + 1)
        else:
            matching = [entry async for entry in self._in_state(index, query.state)]
            total = len(matching)
            entries = _chunks([e for e in matching if after is None or e < after], query.page_size + 1)
        found = await self._load_first(index, entries, query)
        page = found[: query.page_size]
        return TaskPage(
            views=tuple(view for _, view in page),
            total=total,
            next_page_token=encode_page_token(page[-1][0]) if len(found) > len(page) else "",
        )

    async def _in_state(self, index: "_Index", state: TaskState) -> AsyncIterator[IndexEntry]:
        async for entries in index.walk(None, _SCAN_SIZE):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for entry in entries:
                    pipeline.hget(view_key(entry.task_id), "state")
                states = cast("list[str | None]", await pipeline.execute())
            for entry, found in zip(entries, states, strict=True):
                if found == state:
                    yield entry

    async def _load_first(
        self, index: "_Index", chunks: AsyncIterator[Sequence[IndexEntry]], query: TaskQuery
    ) -> list[tuple[IndexEntry, TaskView]]:
        """Return one entry more than fits the page, if there is one: it shows that another page follows."""
        found: list[tuple[IndexEntry, TaskView]] = []
        async for entries in chunks:
            views = await self._load(index, [entry.task_id for entry in entries])
            found += [(entry, views[entry.task_id]) for entry in entries if entry.task_id in views]
            if len(found) > query.page_size:
                break
        return found[: query.page_size + 1]

    async def _load(self, index: "_Index", task_ids: Sequence[str]) -> dict[str, TaskView]:
        async with self._redis.pipeline(transaction=True) as pipeline:
            for task_id in task_ids:
                pipeline.hgetall(view_key(task_id))
                pipeline.lrange(history_key(task_id), 0, -1)
            replies = await pipeline.execute()
        pairs = zip(replies[::2], replies[1::2], strict=True)
        views = {view.task_id: view for fields, history in pairs if (view := decode_view(fields, history))}
        if expired := [task_id for task_id in task_ids if task_id not in views]:
            await self._forget_expired(keys=[index.key, *map(view_key, expired)], args=expired)
        return views


class _Index:
    """The sorted set of the task ids that a query ranges over, from the newest status down."""

    def __init__(self, redis: Redis, query: TaskQuery) -> None:
        self._redis = redis
        self._floor = "-inf" if query.updated_after is None else f"({query.updated_after * 1000}"
        self.key = (
            owner_index_key(query.owner)
            if query.context_id is None
            else context_index_key(query.owner, query.context_id)
        )

    async def count(self) -> int:
        return int(await self._redis.zcount(self.key, self._floor, "+inf"))

    async def walk(self, after: IndexEntry | None, size: int) -> AsyncIterator[list[IndexEntry]]:
        """Yield the entries after this one, in chunks of at most `size`."""
        while entries := await self._next(after, size):
            yield entries
            after = entries[-1]

    async def _next(self, after: IndexEntry | None, size: int) -> list[IndexEntry]:
        top = "+inf" if after is None else after.score
        offset = 0
        while True:
            reply = await self._redis.zrevrangebyscore(
                self.key, top, self._floor, start=offset, num=size, withscores=True
            )
            members = cast("list[tuple[str, float]]", reply)
            entries = [IndexEntry(int(score), task_id) for task_id, score in members]
            # Tasks of the very same millisecond come again; those already listed are left out.
            fresh = [entry for entry in entries if after is None or entry < after]
            if fresh or len(entries) < size:
                return fresh
            offset += size


async def _chunks(entries: Sequence[IndexEntry], size: int) -> AsyncIterator[Sequence[IndexEntry]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
