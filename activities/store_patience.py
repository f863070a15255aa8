"""Waiting out a store that is away while a tool runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from redis.exceptions import RedisError

PATIENCE = 20.0
"""Seconds for which an outage is waited out. The call as a whole is not tried again: the tool has begun, and
may have had an effect."""

_PAUSE = 0.5
"""Seconds from one try to the next."""

_log = structlog.get_logger()

T = TypeVar("T")


class StoreAwayError(Exception):
    """The store did not answer for too long."""


async def insist(operation: Callable[[], Awaitable[T]], patience: float) -> T:
    """Repeat what the store cannot do now, for `patience` seconds; repeating it has to be safe.

    Raises:
        StoreAwayError: it could not do it in that time. Where the store is, the error does not tell.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience
    while True:
        try:
            return await operation()
        except (RedisError, OSError) as error:
            _log.warning("store is away while a tool runs", error_type=type(error).__name__)
        if loop.time() >= give_up:
            raise StoreAwayError
        await asyncio.sleep(_PAUSE)
