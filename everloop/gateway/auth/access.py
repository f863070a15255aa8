"""Authenticates callers, and limits requests and open tasks of each owner; by default all is allowed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field, ValidationInfo, field_validator

from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.context import Caller
from everloop.gateway.errors import TooManyRequestsError
from everloop.gateway.instruments import requests_refused
from everloop.runtime.settings import Settings
from everloop.runtime.telemetry.logs import bind_owner
from everloop.stores.quotas import Quotas, Rate

# How many requests and open tasks an owner may have, over all gateways together.

TASK_WAIT = 10
"""Seconds after which a client that has too many open tasks may try again: nobody knows when one ends."""


class LimitSettings(Settings):
    """What one owner may ask for, over all gateways; not set: as much as there is."""

    requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests of one owner a minute. The same for all gateways. Unset: no limit."""
    request_burst: int | None = Field(default=None, ge=1, le=1_000_000)
    """How many of them may come at once. Refused without a rate. Unset: a minute's."""
    max_open_tasks: int | None = Field(default=None, ge=1)
    """Tasks of one owner that have not ended, those of sub-agents not counted. Unset: no limit."""

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


class RequestLimits:
    """Keeps one owner from taking what belongs to all, over all gateways together; not set: refuses nothing.

    Where the counts cannot be had, it raises what the store does: the call is refused as every call is whose
    task store does not answer, where the tasks live too.
    """

    def __init__(self, settings: LimitSettings | None = None, quotas: Quotas | None = None) -> None:
        self._rate = settings.rate if settings else None
        self._max_open_tasks = settings.max_open_tasks if settings else None
        self._quotas = quotas

    async def admit_request(self, owner: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: it is one too many; it says when to come back.
        """
        if self._rate is None or self._quotas is None:
            return
        seconds = await self._quotas.take_request(owner, self._rate)
        if seconds:
            wait = math.ceil(seconds)
            requests_refused.add(1, {"limit": "rate"})
            raise TooManyRequestsError(
                f"too many requests: this server takes {self._rate.per_minute} a minute from one owner; "
                f"send this one again after {wait} s",
                retry_after=wait,
            )

    async def reserve_task(self, owner: str, task_id: str) -> None:
        """Count a task that is about to start, until it ends; repeating it counts it once.

        Raises:
            TooManyRequestsError: too many tasks of this owner are open.
        """
        if self._max_open_tasks is None or self._quotas is None:
            return
        may_start = await self._quotas.reserve_task(owner, task_id, self._max_open_tasks)
        if not may_start:
            requests_refused.add(1, {"limit": "open_tasks"})
            raise TooManyRequestsError(
                f"too many open tasks: this server lets one owner have {self._max_open_tasks} that have not "
                "ended; send this message again when one has ended, or cancel one",
                retry_after=TASK_WAIT,
            )

    async def release_task(self, owner: str, task_id: str) -> None:
        """Count a task no longer that will not come to exist, because its message was answered at once."""
        if self._max_open_tasks is not None and self._quotas:
            await self._quotas.release_task(owner, task_id)


@dataclass(frozen=True)
class AccessControl:
    """What stands before the agents."""

    authenticator: Authenticator = field(default_factory=Authenticator)
    limits: RequestLimits = field(default_factory=RequestLimits)

    async def admit(self, headers: Mapping[str, str], peer: str) -> Caller:
        """Return who calls, as the authenticator knows it, and count the request as the owner's.

        Raises:
            UnauthenticatedError: nobody whom we know.
            TooManyRequestsError: the owner asks too often.
            UnavailableNowError: a server that we have to ask does not answer.
        """
        caller = await self.authenticator.authenticate(headers, peer)
        bind_owner(caller.owner)
        await self.limits.admit_request(caller.owner)
        return caller
