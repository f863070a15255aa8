"""What is known of tool calls: the record that keeps an effect from happening twice."""

import json
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any, TypeVar, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from redis.asyncio import Redis

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import tool_record_key, tool_result_key
from everloop.stores.retention import RECORD_TTL
from everloop.stores.steps import Lease, OvertakenError, Step, Steps
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.payloads import HIDE_VALUES

T = TypeVar("T")

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


class Claim(Enum):
    """Answer to a claim of a call."""

    FIRST = auto()
    """Nobody has started this call, or who did gave it back; it is ours."""
    LOST = auto()
    """An earlier attempt started it and left no outcome, and its lease has ended; it is ours."""
    HELD = auto()
    """Another attempt works on it: its lease lives."""
    FINISHED = auto()
    """It has an outcome."""
    OVERTAKEN = auto()
    """A later attempt has claimed it before."""


# Tool records in Redis: a hash for each call.
#
# Its fields: `holder`, the attempt whose the call is ('': given back); `until`, when its lease ends, in
# milliseconds of Redis' clock; `claim`, what that attempt was answered; `order`, of the latest attempt that
# has claimed it; `outcome`; `kept`.

_RELEASED_TTL = 600
"""Seconds for which is known that a call was given back of which nothing else is known: longer than an
attempt may be frozen, or its renewal under way, which would otherwise take it again."""


class ToolRecords:
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people comes in phases, each with a record under an id of its own; the outcome of a phase
    is a result or a question. Beside that, a call keeps one JSON value of its tool's own; a model call keeps
    its reply there until plugins have judged it. Only the attempt that holds a call writes anything of it.

    A record is also the lease of its call: it names the attempt that holds it, and until when, by the clock
    of the store. One that has ended still says whose the call is, until another attempt claims it: what was
    only slow goes on, and what was overtaken is refused. Every call may be repeated when its answer was lost.

    Each call is one step, of a trip of its own or of another one.

    `ttl` counts from the last call, or from the end of a task that was open then (default 30 days).

    How much a killed Redis forgets is its own setting: `appendfsync always` nothing, `everysec` up to two
    seconds of claims that it had acknowledged.

    An outcome that cannot be read, of a newer version perhaps, stands, but says no more than that the call
    was started.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = RECORD_TTL) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)
        self._ttl = int(ttl.total_seconds())
        self._steps = Steps(redis)

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Take a call that nobody works on, for so many seconds."""
        (claim,) = await self._steps.run(self.claiming(lease, seconds))
        return cast("Claim", claim)

    def claiming(self, lease: Lease, seconds: float) -> Step[Claim]:
        """Return the step of `claim`; it ends the trip unless the call is ours to be done."""
        return self._step("claim", lease, int(seconds * 1000), lease.order, read=Claim.__getitem__)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold the call for so many seconds from now (0: end the lease); return whether it is ours still.

        A call of which the store knows nothing, because it was emptied, becomes ours again.
        """
        (is_ours,) = await self._steps.run(self._step("renew", lease, int(seconds * 1000), read=bool))
        return bool(is_ours)

    async def release(self, lease: Lease, seconds: float = 0) -> None:
        """Give a call back that is ours and has ended without an outcome: the next claim is the first.

        For so many seconds it stays held all the same.
        """
        await self._steps.run(self._step("release", lease, _RELEASED_TTL, int(seconds * 1000), read=bool))

    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from whoever works on it, who is to stop; nobody holds it then."""
        await self._steps.run(self._step("revoke", lease, lease.order, read=bool))

    async def outcome(self, task_id: str, call_id: str) -> ToolReply | None:
        """Return what a call came to; None if there is nothing, or nothing that can be read."""
        found = await self._redis.hget(tool_record_key(task_id, call_id), "outcome")
        outcome = cast("str | None", found)
        return self._parse(task_id, call_id, outcome) if outcome else None

    async def finish(self, lease: Lease, outcome: ToolReply) -> ToolReply:
        """Record the outcome; the first one recorded stands and is returned.

        Raises:
            OvertakenError: the call is another attempt's.
        """
        sealed = self._cipher.seal_text(outcome.model_dump_json(), _purpose(lease.task_id, lease.call_id))
        (standing,) = await self._steps.run(self._step("finish", lease, sealed, read=str))
        if standing is None:
            raise OvertakenError
        return self._parse(lease.task_id, lease.call_id, standing) or outcome

    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own for a call, in place of the last one; it goes when the record goes.

        None: keep nothing any more.

        Raises:
            OvertakenError: the phase that the lease names is another attempt's.
        """
        text = json.dumps(value)
        kept = "" if value is None else self._cipher.seal_text(text, _purpose(lease.task_id, call_id))
        if await self._steps.run(self._step("keep", lease, kept, call_id=call_id, read=bool)) == (None,):
            raise OvertakenError

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
        kept = cast("str | None", await self._redis.hget(tool_record_key(task_id, call_id), "kept"))
        if kept is None:
            return None
        return cast("JsonValue", json.loads(self._cipher.unseal_text(kept, _purpose(task_id, call_id))))

    def _step(
        self, operation: str, lease: Lease, *arguments: str | int, read: Callable[[Any], T], call_id: str = ""
    ) -> Step[T]:
        keys = [tool_record_key(lease.task_id, call) for call in (lease.call_id, call_id) if call]
        return Step(lease.task_id, f"record.{operation}", keys, [lease.token, self._ttl, *arguments], read)

    def _parse(self, task_id: str, call_id: str, outcome: str) -> ToolReply | None:
        text = self._cipher.unseal_text(outcome, _purpose(task_id, call_id))
        try:
            return OUTCOME_ADAPTER.validate_json(text)
        except ValidationError:
            return None


class ToolResults:
    """digest → text: what tools have said lately to the same arguments. Losing it costs another run."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def get(self, digest: str) -> str | None:
        """Return what was said; None if nothing was, or not lately enough."""
        found = cast("str | None", await self._redis.get(tool_result_key(digest)))
        return None if found is None else self._cipher.unseal_text(found, f"tool result {digest}")

    async def put(self, digest: str, text: str, life: timedelta) -> None:
        """Keep what was said for some time, in place of what was said before."""
        sealed = self._cipher.seal_text(text, f"tool result {digest}")
        await self._redis.set(tool_result_key(digest), sealed, px=life)


def _purpose(task_id: str, call_id: str) -> str:
    return f"tool call {task_id} {call_id}"
