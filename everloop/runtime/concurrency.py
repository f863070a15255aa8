"""Apply an operation to many items with bounded concurrency.

A module of its own, because activities, gateways and stores share it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

CONCURRENCY = 10

T = TypeVar("T")


async def for_each(things: Iterable[str], work: Callable[[str], Awaitable[T]]) -> list[T]:
    """Apply the operation to each item with bounded concurrency; return the results in order."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def work_on(thing: str) -> T:
        async with slots:
            return await work(thing)

    return await asyncio.gather(*map(work_on, things))
