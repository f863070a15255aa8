"""Cancelling for sure."""

import asyncio
from typing import TypeVar

Result = TypeVar("Result")

RETRY_AFTER = 0.1
"""Seconds until a future that did not end is cancelled again."""


async def cancel(future: "asyncio.Future[Result]") -> None:
    """Cancel until it has ended.

    In Python 3.11 a cancellation may get lost in `asyncio.wait_for`, which the Redis client uses.
    """
    while not future.done():
        future.cancel()
        await asyncio.wait({future}, timeout=RETRY_AFTER)
