"""Lua scripts at the keys of one client's task, several of them in one round trip.

Each script is a page of Lua in a file of its own; `task.lua` precedes it. They run in order, but not
atomically: each script that writes for a call checks the lease of the call itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

from redis.asyncio import Redis
from redis.exceptions import NoScriptError
from temporalio.exceptions import ApplicationError

from everloop.workflows.contract import failures

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")

_OVERTAKEN = "OVERTAKEN"

_loaded = WeakSet[Redis]()
"""Clients whose servers have loaded the scripts."""


@dataclass(frozen=True)
class Lease:
    """The claim of one attempt: `call_id` names the call within its task, `token` the attempt.

    `order` tells which of two attempts is later (`precedes` in `task.lua`). Attempts of the same order follow
    their arrival. `attempt` is its number by Temporal's count, which restarts when an operator resets an
    activity. `is_repeatable`: work that it starts may be repeated.
    """

    task_id: str
    call_id: str
    token: str
    order: str = ""
    attempt: int = 1
    is_repeatable: bool = True


class OvertakenError(ApplicationError):
    """Another attempt has taken over the call, or it is no longer needed. This attempt has written nothing.

    Writes for a call take the lease of the attempt, and check for a later one. The error ends the attempt.
    """

    def __init__(self) -> None:
        super().__init__("another attempt has taken this call over", type=failures.OVERTAKEN)
        self.__suppress_context__ = True  # Temporal would store the context, which may contain a secret


def lease_words(lease: Lease | None, claims: str = "") -> list[str]:
    """Return the arguments with which a script checks its permission to write (`refusal` in `task.lua`).

    With `claims` the attempt has to hold the call, by a claim with one of these answers. Without a lease all
    writes are permitted.
    """
    return [lease.call_id, lease.token, lease.order, claims] if lease else ["", "", "", ""]


@dataclass(frozen=True)
class Step(Generic[T]):
    """One script at the keys of a task. It may be repeated after a lost answer."""

    task_id: str
    file: str
    """Path of the script in this folder: `log/append.lua`."""
    keys: Sequence[str]
    arguments: Sequence[str | bytes | int]
    read: Callable[[Any], T]
    """Parses the answer. A script without permission has no answer to parse."""


@overload
async def run_scripts(redis: Redis, first: Step[T1], /) -> tuple[T1]: ...
@overload
async def run_scripts(redis: Redis, first: Step[T1], second: Step[T2], /) -> tuple[T1, T2]: ...
@overload
async def run_scripts(redis: Redis, *steps: Step[Any]) -> tuple[Any, ...]: ...
async def run_scripts(redis: Redis, *steps: Step[Any]) -> tuple[Any, ...]:
    """Run scripts in order, in one round trip, and return their answers.

    Raises:
        OvertakenError: A script was refused, because another attempt has taken over the call.
    """
    if redis not in _loaded:
        await load_scripts(redis)
    replies = await execute(redis, steps)
    for first, reply in enumerate(replies):
        if isinstance(reply, NoScriptError):  # the server is a new one, and no later script ran
            await load_scripts(redis)
            replies[first:] = await execute(redis, steps[first:])
            break
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    if _OVERTAKEN in replies:
        raise OvertakenError
    pairs = zip(steps, replies, strict=True)
    return tuple(None if reply is None else step.read(reply) for step, reply in pairs)


async def load_scripts(redis: Redis) -> None:
    """Load all scripts of this folder into a server, or each of a cluster."""
    folder = Path(__file__).parent
    for file in sorted(folder.glob("*/*.lua")):
        await redis.script_load(script(str(file.relative_to(folder))))
    _loaded.add(redis)


async def execute(redis: Redis, steps: Sequence[Step[Any]]) -> list[Any]:
    """Return Redis' replies to scripts, including errors. See `run_scripts`."""
    if len(steps) == 1:
        try:
            return [await redis.execute_command(*_command(steps[0]))]
        except NoScriptError as error:
            return [error]
    async with redis.pipeline(transaction=False) as pipeline:
        for step in steps:
            pipeline.execute_command(*_command(step))
        return await pipeline.execute(raise_on_error=False)


def _command(step: Step[Any]) -> tuple[str | bytes | int, ...]:
    return ("EVALSHA", script_sha(step.file), len(step.keys), *step.keys, *step.arguments)


@cache
def script(file: str) -> str:
    """Return the text of a script at the keys of a task."""
    return scripts_text("clock.lua", "task.lua", file)


@cache
def script_sha(file: str) -> str:
    """Return the SHA-1 of a script at the keys of a task, its name in Redis."""
    return sha_of(script(file))


@cache
def scripts_text(*files: str) -> str:
    """Join files of this folder to one script; files that others need come first."""
    return "\n".join((Path(__file__).parent / file).read_text("utf-8") for file in files)


def sha_of(text: str) -> str:
    """Return the SHA-1 of a script, its name in Redis."""
    return sha1(text.encode(), usedforsecurity=False).hexdigest()


async def remove_older(redis: Redis, key: str, member: str, at: float) -> None:
    """Remove a member of a sorted set, unless it was added again since that time."""
    await redis.register_script(scripts_text("remove_older.lua"))(keys=[key], args=[member, at])
