"""Does the same to many things, a few at a time.

It has a module of its own because activities, gateways and stores use it, which share nothing else like it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 10

T = TypeVar("T")


async def for_each(things: Iterable[str], work: Callable[[str], Awaitable[T]]) -> list[T]:
    """Do something to each of these, so many at once; return what comes of it, in their order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def work_on(thing: str) -> T:
        async with slots:
            return await work(thing)

    return await asyncio.gather(*map(work_on, things))
