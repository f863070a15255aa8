"""Cancels the calls that still run when the time of a stopping worker is up.

It has a module of its own, as the other interceptor beside it has.
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

AGAIN = timedelta(seconds=10)
"""How long a cancelled call has for its last words, until it is cancelled once more."""


class RunningActivities(Interceptor):
    """Cancels the activities of workers that end, until none runs.

    The SDK cancels each activity once in its life. One that went on when an operator paused it, or Temporal
    forgot it (`everloop.activities.lease`), has had that, and redis-py may lose a cancellation (Python 3.11):
    without this the worker would wait for as long as the call takes.
    """

    def __init__(self) -> None:
        self._running = set[asyncio.Task[Any]]()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 -- the SDK's
        return _Noted(next, self._running)

    async def cancel_after(self, grace: timedelta) -> None:
        """Wait for the grace, then cancel what runs, again and again."""
        await asyncio.sleep(grace.total_seconds())
        while True:
            for running in self._running:
                running.cancel()
            await asyncio.sleep(AGAIN.total_seconds())


class _Noted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, running: set[asyncio.Task[Any]]) -> None:  # noqa: A002 -- the SDK's
        super().__init__(next)
        self._running = running

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401 -- the SDK's
        this = asyncio.current_task()  # the SDK runs each activity in one of its own
        if this is None:
            return await super().execute_activity(input)
        self._running.add(this)
        this.add_done_callback(self._running.discard)
        return await super().execute_activity(input)
