"""Heartbeats: how Temporal learns that an activity lives, and the activity that it was cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import activity

INTERVAL = 1.0
"""Seconds between heartbeats. Cancellation reaches the activity with the answer to one."""


@asynccontextmanager
async def heartbeating() -> AsyncGenerator[None]:
    """Send a heartbeat every second while the block runs; a shorter block costs none."""
    beats = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beats.cancel()


async def _beat() -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        activity.heartbeat()
