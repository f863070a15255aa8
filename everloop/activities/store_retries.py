"""Retries store operations during an outage. All operations here have to be safe to repeat."""

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
from everloop.stores.artifacts.artifact_errors import ArtifactError

AWAY = (BlobsUnavailableError, RedisError, OSError)
"""Errors of a store that is temporarily unavailable."""

STORE_ERRORS = (*AWAY, BlobError, ArtifactError)
"""All errors of the artifact store."""

MAX_OUTAGE = 20.0
"""Seconds of an outage that are waited out while a tool runs. The call itself is not retried: the tool has
started, and may have had an effect."""

LONGEST_OUTAGE = 60.0
"""Seconds of an outage that are waited out before a tool that may not be repeated."""

_PAUSE = 0.5
"""Seconds between attempts around a tool."""

_log = structlog.get_logger()

T = TypeVar("T")


@contextmanager
def suppress_store_errors(event: str, **about: object) -> Generator[None]:
    """Log an event if a store fails in the block, and continue after the block.

    The error's own text is left out: it contains the store's address.
    """
    try:
        yield
    except STORE_ERRORS as error:
        _log.warning(event, error_type=type(error).__name__, **about)


class StoreAwayError(Exception):
    """The store did not answer within the allowed time."""


def artifact_retries() -> AsyncRetrying:
    """Return unlimited retries with pauses from 0.2 to 5 seconds. The timeout of the tool ends them."""
    return AsyncRetrying(
        retry=retry_if_exception_type(AWAY),
        wait=wait_exponential(multiplier=0.2, max=5.0),
        before_sleep=_log_outage,
        reraise=True,
    )


async def retry_artifacts(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation until the artifact store is available."""
    return await _retry(artifact_retries(), operation)


async def retry_for(operation: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Repeat an operation while the store is unavailable, for so many seconds.

    Raises:
        StoreAwayError: The store was unavailable all that time. The error does not contain its address.
    """
    try:
        return await _retry(_retries_for(seconds), operation)
    except AWAY:
        raise StoreAwayError from None


async def retry_unanswered(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation whose answer may have been lost, for `LONGEST_OUTAGE`.

    Raises:
        RedisError, OSError: The outcome of the operation is unknown.
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
    async def attempt() -> T:  # tenacity awaits only the results of coroutine functions
        return await operation()

    return await retries(attempt)


def _log_outage(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    # The error's own text contains the store's address.
    _log.warning("store is away", error_type=type(error).__name__, pause=state.upcoming_sleep)
