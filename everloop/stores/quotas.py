"""Counts what each owner takes of what all share: requests in a time, open tasks, schedules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import Field, ValidationInfo, field_validator
from redis.asyncio import Redis

from everloop.runtime.environment import Settings
from everloop.stores.keys import (
    announced_tasks_key,
    new_schedules_key,
    owner_tasks_key,
    request_rate_key,
)
from everloop.stores.scripts import scripts_text

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


class LimitSettings(Settings):
    """What one owner may ask for, over all processes; not set: as much as there is."""

    requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests of one owner a minute, tasks of schedules included. The same for all processes. Unset: no
    limit."""
    request_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    """How many of them may come at once. Refused without a rate. Unset: a minute's."""
    max_open_tasks: int | None = Field(default=None, ge=1)
    """Tasks of one owner that have not ended, those of sub-agents not counted. The same for all processes.
    Unset: no limit."""

    @field_validator("request_burst")
    @classmethod
    def _is_of_a_rate(cls, burst: int | None, info: ValidationInfo) -> int | None:
        if burst is not None and info.data.get("requests_per_minute") is None:
            raise ValueError(
                "it says how much of a rate may come at once; set "
                "EVERLOOP_REQUESTS_PER_MINUTE too, or leave it out"
            )
        return burst

    @property
    def rate(self) -> Rate | None:
        """The rate of requests, if there is one."""
        if self.requests_per_minute is None:
            return None
        return Rate(self.requests_per_minute, self.request_burst or self.requests_per_minute)


# Requests, open tasks and schedules of owners, counted in Redis.


class Quotas:
    """Counts over all processes; every method is one atomic step.

    Goes by the clock of Redis, so that gateways need not agree on the time.

    The lists of an owner tell which tasks exist. `reservation` is how long one is counted that does not yet.
    """

    def __init__(self, redis: Redis, *, reservation: timedelta = RESERVATION) -> None:
        self._reservation = math.ceil(reservation.total_seconds() * 1000)
        self._redis = redis
        self._take_request = redis.register_script(scripts_text("limits/rate.lua", "limits/request.lua"))
        self._reserve = redis.register_script(scripts_text("clock.lua", "limits/reserve.lua"))

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
        keys = [announced_tasks_key(owner), owner_tasks_key(owner)]
        return await self._reserve(keys=keys, args=[task_id, limit, self._reservation]) == 1

    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist; one that exists counts on."""
        await self._redis.zrem(announced_tasks_key(owner), task_id)

    async def reserve_schedule(self, owner: str, schedule: str, limit: int, listed: Sequence[str]) -> bool:
        """Count a schedule that is about to be made, and return whether it may: not with `limit` others.

        `listed` are those that Temporal lists, which it does some time after they were made: until then they
        count by their reservation.
        """
        arguments = [schedule, limit, self._reservation, *listed]
        return await self._reserve(keys=[new_schedules_key(owner)], args=arguments) == 1

    async def release_schedule(self, owner: str, schedule: str) -> None:
        """Count a schedule no longer that was removed."""
        await self._redis.zrem(new_schedules_key(owner), schedule)
