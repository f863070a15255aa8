"""How many requests and open tasks an owner may have, over all gateways together."""

import math
from collections.abc import Generator
from contextlib import contextmanager

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio import Redis

from everloop.gateway.errors import STORE_FAILURES, to_a2a
from everloop.gateway.guards import RequestLimits, Unlimited
from everloop.gateway.instruments import record_refused
from everloop.gateway.refusals import TooManyRequestsError
from everloop.stores.quotas import Quotas, Rate, RedisQuotas

TASK_WAIT = 10
"""Seconds after which a client that has too many open tasks may try again: nobody knows when one ends."""


class LimitSettings(BaseSettings):
    """What one owner may ask for (environment, prefix EVERLOOP_); not set: as much as there is.

    `requests_per_minute`, of which `request_burst` may come at once (default: all of them). `max_open_tasks`:
    tasks that have not ended, those of sub-agents not counted.
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True, env_ignore_empty=True)

    requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    request_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    max_open_tasks: int | None = Field(default=None, ge=1)

    @field_validator("request_burst")
    @classmethod
    def _is_of_a_rate(cls, burst: int | None, info: ValidationInfo) -> int | None:
        if burst is not None and info.data.get("requests_per_minute") is None:
            raise ValueError(
                "EVERLOOP_REQUEST_BURST: it says how much of a rate may come at once; set "
                "EVERLOOP_REQUESTS_PER_MINUTE too, or leave it out"
            )
        return burst

    @property
    def rate(self) -> Rate | None:
        """The rate of requests, if there is one."""
        if self.requests_per_minute is None:
            return None
        return Rate(self.requests_per_minute, self.request_burst or self.requests_per_minute)


class CountedRequestLimits(RequestLimits):
    """Refuses what is more than the settings allow.

    Where the counts cannot be had, the call is refused as every call is whose task store does not answer:
    there the tasks live too.
    """

    def __init__(self, settings: LimitSettings, quotas: Quotas) -> None:
        self._rate = settings.rate
        self._max_open_tasks = settings.max_open_tasks
        self._quotas = quotas

    async def admit_request(self, owner: str) -> None:
        if self._rate is None:
            return
        with _store_errors():
            seconds = await self._quotas.take_request(owner, self._rate)
        if seconds:
            wait = math.ceil(seconds)
            record_refused("rate")
            raise TooManyRequestsError(
                f"too many requests: this server takes {self._rate.per_minute} a minute from one owner; "
                f"send this one again after {wait} s",
                retry_after=wait,
            )

    async def reserve_task(self, owner: str, task_id: str) -> None:
        if self._max_open_tasks is None:
            return
        with _store_errors():
            may_start = await self._quotas.reserve_task(owner, task_id, self._max_open_tasks)
        if not may_start:
            record_refused("open_tasks")
            raise TooManyRequestsError(
                f"too many open tasks: this server lets one owner have {self._max_open_tasks} that have not "
                "ended; send this message again when one has ended, or cancel one",
                retry_after=TASK_WAIT,
            )

    async def release_task(self, owner: str, task_id: str) -> None:
        if self._max_open_tasks is not None:
            with _store_errors():
                await self._quotas.release_task(owner, task_id)


def make_request_limits(settings: LimitSettings, redis: Redis) -> RequestLimits:
    """Return the limits that are set, counted in Redis; without any, nothing is asked of Redis."""
    if settings.rate is None and settings.max_open_tasks is None:
        return Unlimited()
    return CountedRequestLimits(settings, RedisQuotas(redis))


@contextmanager
def _store_errors() -> Generator[None]:
    """Tell in A2A's terms that the counts cannot be had: not every caller translates failures."""
    try:
        yield
    except STORE_FAILURES as failure:
        raise to_a2a(failure) from failure
