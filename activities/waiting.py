"""Waiting for an artifact store that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from redis.exceptions import RedisError

from everloop.runtime.blobs import BlobsUnavailableError

AWAY = (BlobsUnavailableError, RedisError, OSError)
"""What says that a store cannot do it now."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0

_log = structlog.get_logger()

T = TypeVar("T")


class Patience:
    """Pauses that grow from 0.2 to 5 seconds. There is no last one: the time of the tool ends the waiting."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE

    async def wait(self, error: Exception) -> None:
        """Wait until it is time to try again."""
        # The error's own text would tell where the store is.
        _log.warning("artifact store is away", error_type=type(error).__name__, pause=self._pause)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


async def patiently(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat what a store cannot do now until it does it; repeating it has to be safe."""
    patience = Patience()
    while True:
        try:
            return await operation()
        except AWAY as error:
            await patience.wait(error)


# Waiting out a store that is away while a tool runs.

PATIENCE = 20.0
"""Seconds for which an outage is waited out. The call as a whole is not tried again: the tool has begun, and
may have had an effect."""

_PAUSE = 0.5
"""Seconds from one try to the next."""


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
