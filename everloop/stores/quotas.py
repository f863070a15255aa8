"""Limits each owner's use of shared resources: requests per minute, open tasks, schedules."""

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
"""Time for which an announced task counts that does not exist yet."""


@dataclass(frozen=True)
class Rate:
    """Requests per minute, evenly spread; up to `burst` of them may arrive at the same time."""

    per_minute: int
    burst: int

    @property
    def interval(self) -> float:
        """Seconds of the rate that one request uses."""
        return 60 / self.per_minute


class LimitSettings(Settings):
    """Limits of one owner over all processes. Unset: no limit."""

    requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests of one owner a minute, tasks of schedules included. The same for all processes. Unset: no
    limit."""
    request_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests that may arrive at the same time. Refused without a rate. Unset: those of a minute."""
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
    """Counts over all processes; each method is one atomic step.

    Times are by the clock of Redis, so the clocks of gateways may differ.

    The lists of an owner show the existing tasks. `reservation` is the time for which a task counts that does
    not exist yet.
    """

    def __init__(self, redis: Redis, *, reservation: timedelta = RESERVATION) -> None:
        self._reservation = math.ceil(reservation.total_seconds() * 1000)
        self._redis = redis
        self._take_request = redis.register_script(scripts_text("limits/rate.lua", "limits/request.lua"))
        self._reserve = redis.register_script(scripts_text("clock.lua", "limits/reserve.lua"))

    async def take_request(self, owner: str, rate: Rate) -> float:
        """Count a request and return 0; over the limit, count nothing and return the seconds to wait."""
        interval = round(rate.interval * 1_000_000)
        wait = await self._take_request(
            keys=[request_rate_key(owner)], args=[interval, interval * rate.burst]
        )
        return int(wait) / 1_000_000

    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        """Count a task that is about to start; return whether it may start: not if `limit` others are open.

        A task that is already counted or listed may start in any case. The reservation lasts for
        `RESERVATION`. A listed task counts until its end; tasks of sub-agents do not count.
        """
        keys = [announced_tasks_key(owner), owner_tasks_key(owner)]
        return await self._reserve(keys=keys, args=[task_id, limit, self._reservation]) == 1

    async def release_task(self, owner: str, task_id: str) -> None:
        """Remove the reservation of a task that will not be created. An existing task still counts."""
        await self._redis.zrem(announced_tasks_key(owner), task_id)

    async def reserve_schedule(self, owner: str, schedule: str, limit: int, listed: Sequence[str]) -> bool:
        """Count a schedule that is about to be created; return whether it may be: not with `limit` others.

        `listed` are the schedules that Temporal lists. It lists them some time after their creation; until
        then they count by their reservation.
        """
        arguments = [schedule, limit, self._reservation, *listed]
        return await self._reserve(keys=[new_schedules_key(owner)], args=arguments) == 1

    async def release_schedule(self, owner: str, schedule: str) -> None:
        """Remove the reservation of a removed schedule."""
        await self._redis.zrem(new_schedules_key(owner), schedule)
