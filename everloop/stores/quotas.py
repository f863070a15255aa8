"""Counts what each owner takes of what all share: requests in a time, and open tasks."""

import math
from dataclasses import dataclass
from datetime import timedelta

from redis.asyncio import Redis

from everloop.runtime.redis import RATE
from everloop.stores.keys import announced_tasks_key, request_rate_key
from everloop.stores.log.lists import LISTS_SCRIPT, owner_keys

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
-- Not later than a burst from now on: the clock may have been put back.
local used = math.min(tonumber(redis.call('GET', KEYS[1]) or 0), now + ARGV[2])
local wait, used_up_to = take(used, now, cost, ARGV[2] - cost)
if wait > 0 then
  return math.ceil(wait)
end
redis.call('SET', KEYS[1], used_up_to, 'PX', math.ceil((used_up_to - now) / 1000))
return 0
"""


class Quotas:
    """Counts over all processes; every method is one atomic step.

    Goes by the clock of Redis, so that gateways need not agree on the time.

    The lists of an owner tell which tasks exist. `reservation` is how long one is counted that does not yet.
    """

    def __init__(self, redis: Redis, *, reservation: timedelta = RESERVATION) -> None:
        self._reservation = math.ceil(reservation.total_seconds() * 1000)
        self._take_request = redis.register_script(_TAKE_REQUEST)
        self._redis = redis
        self._lists = redis.register_script(LISTS_SCRIPT)

    async def take_request(self, owner: str, rate: Rate) -> float:
        """Count a request and return 0; or count nothing, and return in how many seconds there is room."""
        interval = round(rate.interval * 1_000_000)
        wait = await self._take_request(
            keys=[request_rate_key(owner)], args=[interval, interval * rate.burst]
        )
        return int(wait) / 1_000_000

    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        """Count a task that is about to start, and return whether it may: not if `limit` others are open.

        A task that is counted already, or that is listed, may in any case. The reservation lasts for
        `RESERVATION`. Once it is listed, a task counts by itself, until it ends; tasks of sub-agents
        never do.
        """
        arguments = ["reserve", task_id, limit, self._reservation]
        return await self._lists(keys=owner_keys(owner), args=arguments) == 1

    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist; one that exists counts on."""
        await self._redis.zrem(announced_tasks_key(owner), task_id)
