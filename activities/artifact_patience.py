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
