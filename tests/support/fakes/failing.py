"""Stores that fail, some times or always, where a test wants it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError

Store = TypeVar("Store")

ALWAYS = 1_000_000


def failing(store: Store, *methods: str, error: BaseException | None = None, times: int = ALWAYS) -> Store:
    """Return the store, whose methods of these names fail so often; by default as if Redis were away."""
    left = times

    def wrap(do: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left >= 0:
                raise error or RedisConnectionError("Error 111 connecting to redis.internal:6379")
            return await do(*arguments, **options)

        return call

    for name in methods:
        setattr(store, name, wrap(getattr(store, name)))
    return store
