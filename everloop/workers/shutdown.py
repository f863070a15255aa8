"""Cancellation of calls that still run when a stopping worker's grace is over."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

AGAIN = timedelta(seconds=10)
"""Time until a cancelled call is cancelled again."""


class RunningActivities(Interceptor):
    """Cancels the activities of stopping workers until none runs.

    The SDK cancels an activity once. One that continued after an operator paused it, or after Temporal
    forgot it (`everloop.activities.lease`), has used that up: the worker would wait for the whole call.
    """

    def __init__(self) -> None:
        self._running = set[asyncio.Task[Any]]()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 -- the SDK's
        return _Noted(next, self._running)

    async def cancel_after(self, grace: timedelta) -> None:
        """Wait for the grace, then cancel running activities repeatedly."""
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
