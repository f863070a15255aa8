"""A fake of the port that delivers push notifications."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import activity

from everloop.workflows.contract.calls import DeliverPushResult, PushRef
from everloop.workflows.contract.ports import PushPort

NOTHING, DELIVERED, DONE = (
    DeliverPushResult(),
    DeliverPushResult(delivered=True),
    DeliverPushResult(done=True),
)

PushStep = DeliverPushResult | Exception | Callable[[], Awaitable[DeliverPushResult]]


class ScriptedPush(PushPort):
    """Plays its steps in order. An exception is raised, a function is awaited."""

    def __init__(self, *script: PushStep) -> None:
        self._script = list(script)
        self.calls: list[PushRef] = []
        self._called = asyncio.Condition()

    async def until_asked(self, times: int) -> None:
        """Wait for this number of deliveries."""
        async with self._called:
            await self._called.wait_for(lambda: len(self.calls) >= times)

    @activity.defn
    async def deliver_push(self, push: PushRef) -> DeliverPushResult:
        async with self._called:
            self.calls.append(push)
            self._called.notify_all()
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, DeliverPushResult) else await step()
