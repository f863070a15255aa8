"""Heartbeats: how Temporal learns that an activity lives, and the activity that it was cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

INTERVAL = 1.0
"""Seconds between heartbeats. Cancellation reaches the activity with the answer to one."""


class Heartbeat:
    """The heartbeat of one activity attempt. It carries something on to the next one, such as counts.

    A worker that dies less than a second after a change may take that with it.
    """

    def __init__(self) -> None:
        details = activity.info().heartbeat_details
        self.carried: dict[str, Any] = dict(details[0]) if details else {}
        """What the attempt before has carried, until something is put in its place."""

    @property
    def failures(self) -> int:
        """How many failures this and earlier attempts have counted, where nothing else is carried."""
        return sum(self.carried.values())

    def count_failure(self, kind: str = "failed") -> int:
        """Return how many failures of this kind were counted, with this one."""
        self.carried[kind] = self.carried.get(kind, 0) + 1
        self.send()
        return self.carried[kind]

    def send(self) -> None:
        """Say that the activity lives; every heartbeat replaces what the one before carried."""
        activity.heartbeat(dict(self.carried))


@asynccontextmanager
async def heartbeating() -> AsyncGenerator[Heartbeat]:
    """Send a heartbeat every second while the block runs; a shorter block costs none."""
    heartbeat = Heartbeat()
    beats = asyncio.create_task(_beat(heartbeat))
    try:
        yield heartbeat
    finally:
        beats.cancel()


async def _beat(heartbeat: Heartbeat) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        heartbeat.send()
