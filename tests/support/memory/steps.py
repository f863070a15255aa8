"""Steps of stores in memory, for tests: each is a call of the store that made it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.asyncio import Redis

from everloop.stores.steps import Step, Steps

T = TypeVar("T")


@dataclass(frozen=True)
class MemoryStep(Step[T]):
    """A step that is done by a function; it ends the script where `stops` says so of what that returns."""

    do: Callable[[], Awaitable[T]]
    stops: Callable[[T], bool]


def memory_step(
    task_id: str, do: Callable[[], Awaitable[T]], stops: Callable[[T], bool] = lambda _: False
) -> Step[T]:
    """Return the step that does it."""
    return MemoryStep(task_id, "memory", (), (), lambda _: _, do, stops)


def redis_of(*stores: object) -> Redis | None:
    """Return the Redis of these stores, None if all are in memory: a trip goes to one place."""
    return next((redis for store in stores if (redis := getattr(store, "_redis", None))), None)


class MemorySteps(Steps):
    """Does one step after the other. What fails in the middle leaves what was done before it."""

    def __init__(self) -> None:
        pass

    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        replies: list[Any] = []
        for step in steps:
            assert isinstance(step, MemoryStep), "a trip goes to stores in memory, or to Redis"
            replies.append(await step.do())
            if step.stops(replies[-1]):
                break
        return (*replies, *(None for _ in steps[len(replies) :]))
