"""Steps at the keys of a task, which one Lua script runs in order, atomically, in one round trip to Redis.

Whatever is kept of a client's task and of its sub-agents shares a hash slot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

from redis.asyncio import Redis
from temporalio.exceptions import ApplicationError

from everloop.runtime.redis import NOW
from everloop.stores.keys import task_keys_key, view_key
from everloop.workflows.contract import failures
from everloop.workflows.contract.names import root_task_id

_PARTS = {
    "view": ("views/view_fields.lua", "views/view_drafts.lua", "views/task_views.lua"),
    "shown": ("views/shown.lua",),
    "transcript": ("transcripts.lua",),
    "record": ("tool_records.lua",),
    "push": ("push/configs.lua",),
}
"""Name of each part of the script → its files."""

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")


@dataclass(frozen=True)
class Step(Generic[T]):
    """One step at the keys of a task. A script that is repeated does all of its steps again."""

    task_id: str
    name: str
    """Part of the script, and the operation in it: `view.publish`."""
    keys: Sequence[str]
    arguments: Sequence[str | bytes | int]
    read: Callable[[Any], T]
    """Reads the reply, which may be None."""


class Steps:
    """Runs steps at the keys of one task, in one round trip.

    A step may end the script: those after it are not done, and what they return is None.
    """

    def __init__(self, redis: Redis) -> None:
        self._script = redis.register_script(_script())

    @overload
    async def run(self, first: Step[T1], /) -> tuple[T1]: ...
    @overload
    async def run(self, first: Step[T1], second: Step[T2], /) -> tuple[T1, T2 | None]: ...
    @overload
    async def run(
        self, first: Step[T1], second: Step[T2], third: Step[T3], /
    ) -> tuple[T1, T2 | None, T3 | None]: ...
    @overload
    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]: ...
    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Do the steps, and return what they read.

        Raises:
            OvertakenError: a step was asked for an attempt at a call that another one has taken over; those
                before it are done.
        """
        root = root_task_id(steps[0].task_id)
        keys, arguments = [view_key(root), task_keys_key(root)], list[str | bytes | int]()
        for step in steps:
            keys += step.keys
            arguments += [step.name, len(step.keys), len(step.arguments), *step.arguments]
        answer = await self._script(keys=keys, args=arguments)
        is_overtaken, replies = cast("tuple[int, Sequence[Any]]", answer)
        if is_overtaken:
            raise OvertakenError
        done = [step.read(reply) for step, reply in zip(steps, replies, strict=False)]
        return (*done, *(None for _ in steps[len(done) :]))


@cache
def _script() -> str:
    parts = (f"function parts.{name}()\n{_nested(*files)}\nend" for name, files in _PARTS.items())
    return "\n".join((NOW, _text("steps.lua"), *parts, "return run()"))


def _text(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


def _nested(file: str, *others: str) -> str:
    """Return the text of files, each in a function of its own within the one before.

    Lua makes every function anew in each trip. What one takes from an outer function is at hand; for a local
    of the same function Lua looks through all that were taken before. One function takes 60 at most.
    """
    inner = f"\n(function()\n{_nested(*others)}\nend)()" if others else ""
    return _text(file) + inner


# Leases: which attempt at a call may work on it now.
#
# The records of calls hold them (`stores.tool_records`); whatever is written for a call takes them too.


@dataclass(frozen=True)
class Lease:
    """What one attempt claims: `call_id` names the call within its task, `token` the attempt.

    `order` tells which of two attempts came later (`precedes` of the script); attempts of the same order come
    as they come.
    `attempt` is its number by Temporal's count, which begins again when an operator resets an activity.
    `is_repeatable`: what it begins may be begun again.
    """

    task_id: str
    call_id: str
    token: str
    order: str = ""
    attempt: int = 1
    is_repeatable: bool = True


class OvertakenError(ApplicationError):
    """Another attempt has taken the call over, or nobody wants it any more: this one has written nothing.

    What writes for a call takes the lease of the attempt, and looks for a later one in the same step. The
    error ends the attempt.
    """

    def __init__(self) -> None:
        super().__init__("another attempt has taken this call over", type=failures.OVERTAKEN)
        self.__suppress_context__ = True  # Temporal would keep it, and it may hold a secret


def late_words(lease: Lease | None) -> list[str]:
    """Return the call and the order that `is_late` of the script takes; without a lease nobody is late."""
    return [lease.call_id, lease.order] if lease else ["", ""]
