"""Authentication, and limits of requests and open tasks per owner; by default everything is allowed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from everloop.gateway.auth.schemes import Authenticator
from everloop.gateway.context import Caller
from everloop.gateway.errors import TooManyRequestsError
from everloop.gateway.gateway_instruments import requests_refused
from everloop.runtime.telemetry.logs import bind_owner
from everloop.stores.quotas import LimitSettings, Quotas

# How many requests and open tasks an owner may have, over all gateways together.

TASK_WAIT = 10
"""Retry-After in seconds for a client with too many open tasks: nothing tells when one will end."""


class RequestLimits:
    """Counts requests and open tasks per owner, over all gateways together.

    Errors of the store are raised as they are: without the store, where tasks live too, every call is
    refused.
    """

    def __init__(self, settings: LimitSettings | None = None, quotas: Quotas | None = None) -> None:
        self._rate = settings.rate if settings else None
        self._max_open_tasks = settings.max_open_tasks if settings else None
        self._quotas = quotas

    async def admit_request(self, owner: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: the limit is reached; it says when to retry.
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
        """Count a task about to start, until it ends; a repeated reservation counts once.

        Raises:
            TooManyRequestsError: the owner has too many open tasks.
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
        """Cancel the reservation of a task that will not exist, because its message was answered directly."""
        if self._max_open_tasks is not None and self._quotas:
            await self._quotas.release_task(owner, task_id)


@dataclass(frozen=True)
class AccessControl:
    """Admission of callers to the agents."""

    authenticator: Authenticator = field(default_factory=Authenticator)
    limits: RequestLimits = field(default_factory=RequestLimits)

    async def admit(self, headers: Mapping[str, str], peer: str) -> Caller:
        """Authenticate the caller, and count the request as the owner's.

        Raises:
            UnauthenticatedError: the credentials are missing or invalid.
            TooManyRequestsError: the owner exceeds the rate.
            UnavailableNowError: a server needed for authentication does not answer.
        """
        caller = await self.authenticator.authenticate(headers, peer)
        bind_owner(caller.owner)
        await self.limits.admit_request(caller.owner)
        return caller
