"""How much each owner takes of what belongs to all: requests and open tasks."""

import math
from dataclasses import dataclass
from datetime import timedelta

from redis.asyncio import Redis

from everloop.runtime.redis import NOW, RATE
from everloop.stores.keys import open_tasks_key, request_rate_key, view_key

RESERVATION = timedelta(minutes=1)
"""How long a task is counted that was announced, but of which nothing has been seen yet."""


@dataclass(frozen=True)
class Rate:
    """How many requests a minute, evenly spread; up to `burst` of them may come at once."""

    per_minute: int
    burst: int

    @property
    def interval(self) -> float:
        """Seconds that one request uses up."""
        return 60 / self.per_minute


# Requests and open tasks of owners, counted in Redis.

_TAKE_REQUEST = f"""{RATE}
-- KEYS: rate. ARGV: microseconds of one request, of a burst. Answers the microseconds until there is room.
local time = redis.call('TIME')
local now, cost = time[1] * 1000000 + time[2], tonumber(ARGV[1])
local wait, used_up_to = take(tonumber(redis.call('GET', KEYS[1]) or 0), now, cost, ARGV[2] - cost)
if wait > 0 then
  return math.ceil(wait)
end
redis.call('SET', KEYS[1], used_up_to, 'PX', math.ceil((used_up_to - now) / 1000))
return 0
"""

_RESERVE_TASK = f"""{NOW}
-- KEYS: open tasks, view. ARGV: task id, limit, milliseconds of a reservation. Answers whether it may start.
local until_then = now() + tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now())
if redis.call('HEXISTS', KEYS[2], 'task') == 1 then
  return 1
end
local is_counted = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not is_counted and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], until_then, ARGV[1])
local has_tasks = redis.call('ZCOUNT', KEYS[1], '+inf', '+inf') > 0
if not has_tasks and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
"""

_RELEASE_TASK = """
-- KEYS: open tasks, view. ARGV: task id.
if redis.call('HEXISTS', KEYS[2], 'task') == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
"""


class Quotas:
    """Counts over all processes; every method is one atomic step.

    Goes by the clock of Redis, so that gateways need not agree on the time.

    `task_views.lua` counts the tasks that exist. `reservation` is how long one is counted that does not yet.
    """

    def __init__(self, redis: Redis, *, reservation: timedelta = RESERVATION) -> None:
        self._reservation = math.ceil(reservation.total_seconds() * 1000)
        self._take_request = redis.register_script(_TAKE_REQUEST)
        self._reserve_task = redis.register_script(_RESERVE_TASK)
        self._release_task = redis.register_script(_RELEASE_TASK)

    async def take_request(self, owner: str, rate: Rate) -> float:
        """Count a request and return 0; or count nothing, and return in how many seconds there is room."""
        interval = round(rate.interval * 1_000_000)
        wait = await self._take_request(
            keys=[request_rate_key(owner)], args=[interval, interval * rate.burst]
        )
        return int(wait) / 1_000_000

    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        """Count a task that is about to start, and return whether it may: not if `limit` others are open.

        A task that is counted already, or that has been seen, may in any case. The reservation lasts for
        `RESERVATION`. Once its view exists, a task counts by itself, until it ends; tasks of sub-agents
        never do.
        """
        arguments = [task_id, limit, self._reservation]
        return await self._reserve_task(keys=_keys(owner, task_id), args=arguments) == 1

    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist; one that exists counts on."""
        await self._release_task(keys=_keys(owner, task_id), args=[task_id])


def _keys(owner: str, task_id: str) -> list[str]:
    return [open_tasks_key(owner), view_key(task_id)]
