"""Large lists of tasks in Redis, made in seconds, and expired tasks."""

from typing import cast

from redis.asyncio import Redis

from everloop.stores.keys import head_key, log_key, owner_tasks_key, snapshot_key
from everloop.stores.log.rows import Row, rows_of, time_word
from everloop.workflows.contract.fold import microseconds
from everloop.workflows.contract.tasks import TaskView

_COPY_TASK = """
-- KEYS: the rows of its owner, the view to copy, key of any view before and after its task id.
-- ARGV: its task id, numbers of the first copy and the last, time of the task, what is listed of it. Each is
-- a second older than the one before.
local function plain(text)
  return (text:gsub('%p', '%%%0'))
end
local from, task, id, at = KEYS[2], redis.call('HGET', KEYS[2], 'task'), plain(ARGV[1]), ARGV[4]
for n = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local task_id, copied = ARGV[1] .. '-' .. n, {}
  local to = KEYS[3] .. task_id .. KEYS[4]
  redis.call('COPY', from, to)
  redis.call('HSET', to, 'task', (task:gsub(id, task_id)))
  for row = 5, #ARGV do
    copied[#copied + 1] = 0
    copied[#copied + 1] = ARGV[row]:gsub(id, task_id):gsub(at, ('%016.0f'):format(at - n * 1000000))
  end
  redis.call('ZADD', KEYS[1], unpack(copied))
end
"""


_AT_ONCE = 5_000
"""The number of copies of one script run: a client times out after some seconds."""


async def copy_task(redis: Redis, view: TaskView, copies: int) -> None:
    """Add copies of an ended task, as if they had been created, which takes minutes one by one."""
    copy, owned = redis.register_script(_COPY_TASK), owner_tasks_key(view.owner)
    listed = cast("list[str]", await redis.zrange(owned, 0, -1))
    rows = [row for row in listed if view.task_id in row]
    keys = [owned, head_key(view.task_id), *head_key("*").split("*")]
    for first in range(1, copies + 1, _AT_ONCE):
        last = min(first + _AT_ONCE - 1, copies)
        at = f"{microseconds(view.status.at):016d}"
        await copy(keys=keys, args=[view.task_id, first, last, at, *rows])


async def expire_task(redis: Redis, view: TaskView) -> None:
    """Expire an ended task, as if its time to live had passed."""
    await redis.delete(head_key(view.task_id), snapshot_key(view.task_id), log_key(view.task_id))
    rows, before = owner_tasks_key(view.owner), f"t {view.task_id} "
    listed = [row for row in cast("list[str]", await redis.zrange(rows, 0, -1)) if row.startswith(before)]
    for row in map(Row.parse, listed):
        expired = rows_of(row._replace(expiry=time_word(0)))
        await redis.zrem(rows, *rows_of(row))
        await redis.zadd(rows, dict.fromkeys(expired, 0))
