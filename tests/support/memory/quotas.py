"""Requests and open tasks of owners, counted in memory, for tests: what they compare the real store with."""

import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from everloop.stores.quotas import RESERVATION, Quotas, Rate
from tests.support.memory.task_views import MemoryTaskViews


class MemoryQuotas(Quotas):
    """Counts the tasks of `views` beside those that are reserved. `clock` is in seconds."""

    def __init__(
        self,
        views: MemoryTaskViews,
        *,
        reservation: timedelta = RESERVATION,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._views = views
        self._reservation = reservation.total_seconds()
        self._clock = clock
        self._used_up_to: dict[str, float] = {}
        self._reserved: defaultdict[str, dict[str, float]] = defaultdict(dict)

    async def take_request(self, owner: str, rate: Rate) -> float:
        now = self._clock()
        used_up_to = max(self._used_up_to.get(owner, now), now) + rate.interval
        wait = used_up_to - now - rate.interval * rate.burst
        if wait > 0:
            return wait
        self._used_up_to[owner] = used_up_to
        return 0.0

    async def reserve_task(self, owner: str, task_id: str, limit: int) -> bool:
        now = self._clock()
        if await self._views.state(task_id):
            return True
        self._reserved[owner] = {
            reserved: until
            for reserved, until in self._reserved[owner].items()
            if until > now and not await self._views.state(reserved)
        }
        reserved = self._reserved[owner]
        if task_id not in reserved and len(reserved) + len(self._views.open_tasks(owner)) >= limit:
            return False
        reserved[task_id] = now + self._reservation
        return True

    async def release_task(self, owner: str, task_id: str) -> None:
        self._reserved[owner].pop(task_id, None)
