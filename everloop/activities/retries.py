"""Retries store operations while a store is down; whatever is repeated here has to be safe to repeat."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import structlog
from redis.exceptions import RedisError
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)

from everloop.runtime.blobs import BlobError, BlobsUnavailableError
from everloop.stores.artifacts.errors import ArtifactError

AWAY = (BlobsUnavailableError, RedisError, OSError)
"""What says that a store cannot do it now."""

STORE_ERRORS = (*AWAY, BlobError, ArtifactError)
"""Whatever the store of artifacts raises."""

MAX_OUTAGE = 20.0
"""Seconds for which an outage is waited out while a tool runs. The call as a whole is not tried again: the
tool has begun, and may have had an effect."""

LONGEST_OUTAGE = 60.0
"""Seconds for which an outage is waited out before a tool runs that may not be repeated."""

_PAUSE = 0.5
"""Seconds from one try to the next around a tool."""

_log = structlog.get_logger()

T = TypeVar("T")


@contextmanager
def suppress_store_errors(event: str, **about: object) -> Generator[None]:
    """Go on behind the block where a store fails inside, and log the event.

    The error's own text is left out: it would name the store's address.
    """
    try:
        yield
    except STORE_ERRORS as error:
        _log.warning(event, error_type=type(error).__name__, **about)


class StoreAwayError(Exception):
    """The store did not answer for too long."""


def artifact_retries() -> AsyncRetrying:
    """Return retries with pauses from 0.2 to 5 seconds. None is the last: the time of the tool ends them."""
    return AsyncRetrying(
        retry=retry_if_exception_type(AWAY),
        wait=wait_exponential(multiplier=0.2, max=5.0),
        before_sleep=_log_outage,
        reraise=True,
    )


async def retry_artifacts(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat what the artifact store cannot do now until it does it."""
    return await _retry(artifact_retries(), operation)


async def retry_for(operation: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat what a store cannot do now, for so many seconds.

    Raises:
        StoreAwayError: it could not do it in that time. The error does not name the store's address.
    """
    try:
        return await _retry(_retries_for(seconds), operation)
    except AWAY:
        raise StoreAwayError from None


async def retry_unanswered(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat what a store may have done although its answer was lost, for `LONGEST_OUTAGE`.

    Raises:
        RedisError, OSError: nobody knows whether it was done.
    """
    return await _retry(_retries_for(LONGEST_OUTAGE), operation)


def _retries_for(seconds: float) -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(AWAY),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(_PAUSE),
        before_sleep=_log_outage,
        reraise=True,
    )


async def _retry(retries: AsyncRetrying, operation: Callable[[], Awaitable[T]]) -> T:
    async def attempt() -> T:  # tenacity awaits only what a coroutine function returns
        return await operation()

    return await retries(attempt)


def _log_outage(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    # The error's own text would name the store's address.
    _log.warning("store is away", error_type=type(error).__name__, pause=state.upcoming_sleep)
