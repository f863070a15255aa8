"""What is known of tool calls: the record that keeps an effect from happening twice."""

import json
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import JsonValue, TypeAdapter
from redis.asyncio import Redis

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import outcomes_key, records_key, tool_result_key
from everloop.stores.retention import GRACE, RECORD_TTL
from everloop.stores.steps import Lease, Step, Steps
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.payloads import HIDE_VALUES

T = TypeVar("T")

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


def reply_call(run_id: str, position: int, tries: int) -> str:
    """Return the id of the call of a model for the reply at a position (`record.claim` looks for it)."""
    return f"reply {run_id} {position}.{tries}"


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


class Claimed(NamedTuple):
    """What a claim has found: how many attempts at the call there were, and its outcome if that can be read.

    `attempts` is greater than that of any attempt before, and the same however often one attempt asks.
    `may_repeat`: what was begun before may be repeated, as every attempt said that has begun it.
    """

    claim: Claim
    attempts: int = 1
    may_repeat: bool = True
    outcome: ToolReply | None = None


class ToolRecords:
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people comes in phases, each with a record under an id of its own; the outcome of a phase
    is a result or a question. Beside that, a call keeps one JSON value of its tool's own; a model call keeps
    its reply there until plugins have judged it. Only the attempt that holds a call writes anything of it.

    A record is also the lease of its call: it names the attempt that holds it, and until when, by the clock
    of the store. One that has ended still says whose the call is, until another attempt claims it: what was
    only slow goes on, and what was overtaken is refused. Every call may be repeated when its answer was lost.

    Each call is one step, of a round trip of its own or of another one.

    `ttl` counts from the last new call, or from the end of a task that was open (default 7 days); so does
    `outcome_ttl`, after which is known that a call has ended, but no longer what it came to (default 1 day).

    How much a killed Redis forgets is its own setting: `appendfsync always` nothing, `everysec` up to two
    seconds of claims that it had acknowledged.

    An outcome that is forgotten, or cannot be read, of a newer version perhaps, stands, but says no more than
    that the call was started.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = RECORD_TTL, outcome_ttl: timedelta = GRACE) -> None:
        self._cipher = cipher_of(redis)
        self._ttl, self._outcome_ttl = int(ttl.total_seconds()), int(outcome_ttl.total_seconds())
        self.steps = Steps(redis)

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Take a call that nobody works on, for so many seconds."""
        (claimed,) = await self.steps.run(self.claiming(lease, seconds))
        return claimed.claim

    def claiming(
        self, lease: Lease, seconds: float, *, goes_on: bool = True, reply: int | None = None
    ) -> Step[Claimed]:
        """Return the step of `claim`; it ends the script unless the call is ours.

        `goes_on`: one that was lost is as good as any other. `reply`: the position of the model's reply that
        asks for it, where another attempt may have begun it. If neither is known Redis was emptied, and the
        call counts as lost.
        """
        position = "" if reply is None else reply
        arguments = [lease.order, lease.attempt, int(seconds * 1000), int(goes_on), position]

        def read(reply: list[str | int]) -> Claimed:
            claim, attempts, may_repeat, *outcome = reply
            parsed = self._parse(lease.task_id, lease.call_id, str(outcome[0])) if outcome else None
            return Claimed(Claim[str(claim)], int(attempts), bool(int(may_repeat)), parsed)

        return self._step("claim", lease, *arguments, read=read)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold the call for so many seconds from now (0: end the lease); return whether it is ours still.

        A call of which the store knows nothing, because it was emptied, becomes ours again.
        """
        (is_ours,) = await self.steps.run(self._step("renew", lease, int(seconds * 1000), read=bool))
        return bool(is_ours)

    def releasing(self, lease: Lease, seconds: float = 0, *, counts: bool = True) -> Step[bool]:
        """Return the step that gives back a call of ours that has ended without an outcome.

        The next claim is the first; for so many seconds there is none. `counts`: the attempt is counted.
        """
        return self._step("release", lease, int(seconds * 1000), int(counts), read=bool)

    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from whoever works on it, who is to stop; nobody holds it then."""
        await self.steps.run(self._step("revoke", lease, lease.order, read=bool))

    def finishing(self, lease: Lease, outcome: ToolReply) -> Step[ToolReply]:
        """Return the step that records an outcome, and reads the first one recorded: that stands.

        It ends the script where another outcome stands, and where the call is another attempt's.
        """
        text = outcome.model_dump_json(exclude_defaults=True)
        packed = self._cipher.pack(text, _purpose(lease.task_id, lease.call_id))

        def read(standing: str | None) -> ToolReply:
            return (standing and self._parse(lease.task_id, lease.call_id, standing)) or outcome

        return self._step("finish", lease, packed, self._outcome_ttl, read=read)

    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own for a call, in place of the last one; it goes when the record goes.

        None: keep nothing any more.

        Raises:
            OvertakenError: the phase that the lease names is another attempt's.
        """
        await self.steps.run(self.keeping(lease, call_id, value))

    def keeping(self, lease: Lease, call_id: str, value: JsonValue) -> Step[bool]:
        """Return the step of `keep`."""
        text = json.dumps(value)
        kept = "" if value is None else self._cipher.seal_text(text, _purpose(lease.task_id, call_id))
        return self._step("keep", lease, call_id, kept, read=bool)

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
        (value,) = await self.steps.run(self.reading_kept(task_id, call_id))
        return value

    def reading_kept(self, task_id: str, call_id: str) -> Step[JsonValue]:
        """Return the step of `kept`."""

        def read(kept: str | None) -> JsonValue:
            return kept and json.loads(self._cipher.unseal_text(kept, _purpose(task_id, call_id)))

        return Step(task_id, "record.kept", [records_key(task_id)], [call_id], read)

    def _step(
        self, operation: str, lease: Lease, *arguments: str | bytes | int, read: Callable[[Any], T]
    ) -> Step[T]:
        words = [lease.call_id, lease.token, self._ttl, int(lease.is_repeatable), *arguments]
        keys = [records_key(lease.task_id), outcomes_key(lease.task_id)]
        return Step(lease.task_id, f"record.{operation}", keys, words, read)

    def _parse(self, task_id: str, call_id: str, outcome: str) -> ToolReply | None:
        try:
            return OUTCOME_ADAPTER.validate_json(self._cipher.unpack(outcome, _purpose(task_id, call_id)))
        except ValueError:  # of pydantic, too
            return None


class ToolResults:
    """digest → text: what tools have said lately to the same arguments. Losing it costs another run."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def get(self, digest: str) -> str | None:
        """Return what was said; None if nothing was, or not lately enough."""
        found = cast("str | None", await self._redis.get(tool_result_key(digest)))
        return None if found is None else json.loads(self._cipher.unseal_text(found, _result_purpose(digest)))

    async def put(self, digest: str, text: str, life: timedelta) -> None:
        """Keep what was said for some time, in place of what was said before."""
        sealed = self._cipher.seal_text(json.dumps(text), _result_purpose(digest))
        await self._redis.set(tool_result_key(digest), sealed, px=life)


def _purpose(task_id: str, call_id: str) -> str:
    return f"tool call {task_id} {call_id}"


def _result_purpose(digest: str) -> str:
    return f"tool result {digest}"
