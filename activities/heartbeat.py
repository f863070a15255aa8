"""Heartbeats: how Temporal learns that an activity lives, and the activity that it was cancelled."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import activity

INTERVAL = 1.0
"""Seconds between heartbeats. Cancellation reaches the activity with the answer to one."""


class Heartbeat:
    """The heartbeat of one activity attempt. It carries a count of failures, by kind, on to the next attempt.

    A worker that dies less than a second after it counted may take the last failure with it.
    """

    def __init__(self) -> None:
        details = activity.info().heartbeat_details
        self._failures = Counter[str](details[0] if details else {})

    @property
    def failures(self) -> int:
        """How many failures this and earlier attempts have counted."""
        return self._failures.total()

    def count_failure(self, kind: str = "failed") -> int:
        """Return how many failures of this kind were counted, with this one."""
        self._failures[kind] += 1
        self.send()
        return self._failures[kind]

    def send(self) -> None:
        """Say that the activity lives; every heartbeat replaces what the one before carried."""
        activity.heartbeat(dict(self._failures))


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
