"""Lists of very many tasks in Redis, made in seconds."""

from redis.asyncio import Redis

from everloop.stores.keys import expiry_list_key, task_list_key, view_key
from everloop.stores.views.parts import microseconds
from everloop.workflows.contract.tasks import TaskView

_COPY_TASK = """
-- KEYS: the four lists that the task is in, the expiry list, the view to copy.
-- ARGV: its task id, numbers of the first copy and the last, time of the task. Each is a second older than
-- the one before.
local from, task = KEYS[6], redis.call('HGET', KEYS[6], 'task')
for n = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local task_id = ARGV[1] .. '-' .. n
  local to = KEYS[7] .. task_id .. KEYS[8]
  redis.call('COPY', from, to)
  redis.call('HSET', to, 'task', (task:gsub(ARGV[1]:gsub('%p', '%%%0'), task_id)))
  for list = 1, 4 do
    redis.call('ZADD', KEYS[list], ARGV[4] - n * 1000000, task_id)
  end
  redis.call('ZADD', KEYS[5], redis.call('PEXPIRETIME', to), KEYS[2] .. ' ' .. task_id)
end
"""


_AT_ONCE = 5_000
"""How many copies one script makes: a client gives up on Redis after some seconds."""


async def copy_task(redis: Redis, view: TaskView, copies: int) -> None:
    """Add copies of a task that has ended, as if they had been created; one by one that takes minutes."""
    lists = [
        task_list_key(view.owner, view.agent_id, context, state)
        for state in ("", view.status.state)
        for context in (None, view.context_id)
    ]
    copy = redis.register_script(_COPY_TASK)
    keys = [
        *lists,
        expiry_list_key(view.owner, view.agent_id),
        view_key(view.task_id),
        *view_key("*").split("*"),
    ]
    for first in range(1, copies + 1, _AT_ONCE):
        last = min(first + _AT_ONCE - 1, copies)
        await copy(keys=keys, args=[view.task_id, first, last, microseconds(view.status.at)])
