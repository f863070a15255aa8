"""Stores that fail some times or always in methods of a test's choice."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Never, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError

Store = TypeVar("Store")

ALWAYS = 1_000_000

UNREACHED: set[str] = set()
"""Methods with a planned failure that the running test has not called, so that it would prove nothing."""


def failing(
    store: Store,
    *methods: str,
    error: BaseException | None = None,
    times: int = ALWAYS,
    reached: asyncio.Event | None = None,
) -> Store:
    """Return the store with this number of failures in these methods; by default as if Redis were away.

    A method that returns a step fails the trip of that step, which has no effect. `reached` is set in a call.
    """
    left, raised = times, error or RedisConnectionError("Error 111 connecting to redis.internal:6379")
    UNREACHED.update(methods)

    def wrap(name: str) -> Callable[..., object]:
        do: Callable[..., object] = getattr(store, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            UNREACHED.discard(name)
            if reached:
                reached.set()
            done = do(*arguments, **options)
            if left < 0:
                return done
            if isinstance(done, Coroutine):
                done.close()
                raise raised
            return _FailingStep(raised)

        return call

    for name in methods:
        setattr(store, name, wrap(name))
    return store


class _FailingStep:
    """A step that fails each trip."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Never:
        raise self._error
