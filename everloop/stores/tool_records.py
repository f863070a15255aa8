"""What is known of tool calls: the record that keeps an effect from happening twice."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import JsonValue, TypeAdapter
from redis.asyncio import Redis

from everloop.runtime.redis import cipher_of
from everloop.stores.keys import outcomes_key, records_key, registry_key, tool_result_key
from everloop.stores.lifetimes import GRACE, RECORD_TTL
from everloop.stores.scripts import Lease, Step, run_scripts
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.payloads import HIDE_VALUES

T = TypeVar("T")

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


def reply_call(run_id: str, position: int, tries: int) -> str:
    """Return the id of the call of a model for the reply at a position (`claim.lua` looks for it)."""
    return f"reply {run_id} {position}.{tries}"


BEGUN = "FIRST AGAIN"
"""The claims of a call that is ours to be done: it is the first, or was lost and may be repeated."""

ENDED = "DONE"
"""The claim of a call whose outcome this attempt has recorded."""


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
    `may_repeat`: what was begun before may be repeated, as every attempt said that has begun it. `kept` is
    the value that is kept for a call.
    """

    claim: Claim
    attempts: int = 1
    may_repeat: bool = True
    outcome: ToolReply | None = None
    kept: JsonValue = None


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
        self._redis = redis

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Take a call that nobody works on, for so many seconds."""
        return (await self.run(self.claiming(lease, seconds)))[0].claim

    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Run scripts at the keys of one task in one round trip; see `run_scripts`."""
        return await run_scripts(self._redis, *steps)

    def claiming(
        self, lease: Lease, seconds: float, *, kept: str = "", reply: int | None = None
    ) -> Step[Claimed]:
        """Return the step of `claim`; `kept`: it also reads the value that is kept for this call.

        `reply`: the position of the model's reply that asks for the call, where another attempt may have
        begun it. If neither is known Redis was emptied, and the call counts as lost.
        """
        position = "" if reply is None else reply
        words = [int(lease.is_repeatable), lease.order, lease.attempt, int(seconds * 1000), position, kept]

        def read(answer: Sequence[Any]) -> Claimed:
            claim, attempts, may_repeat, *found = answer
            outcome, value = found or (None, None)
            parsed = self._parse(lease.task_id, lease.call_id, outcome) if outcome else None
            known = self._value(lease.task_id, kept, value)
            return Claimed(Claim[claim], int(attempts), may_repeat == "1", parsed, known)

        keys = [records_key(lease.task_id), outcomes_key(lease.task_id), registry_key(lease.task_id)]
        return self._step("claim", lease, keys, [self._ttl, *words], read)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold the call for so many seconds from now (0: end the lease); return whether it is ours still.

        A call of which the store knows nothing, because it was emptied, becomes ours again.
        """
        words = [self._ttl, int(lease.is_repeatable), int(seconds * 1000)]
        return (await self.run(self._step("renew", lease, self._keys(lease), words, bool)))[0]

    def releasing(self, lease: Lease, seconds: float = 0, *, counts: bool = True) -> Step[bool]:
        """Return the step that gives back a call of ours that has ended without an outcome.

        The next claim is the first; for so many seconds there is none. `counts`: the attempt is counted.
        """
        words = [int(seconds * 1000), int(counts)]
        return self._step("release", lease, [records_key(lease.task_id)], words, bool)

    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from whoever works on it, who is to stop; nobody holds it then."""
        await self.run(
            self._step(
                "revoke", lease, self._keys(lease), [lease.order, self._ttl, int(lease.is_repeatable)], bool
            )
        )

    def finishing(self, lease: Lease, outcome: ToolReply) -> Step[ToolReply]:
        """Return the step that records an outcome, and reads the first one recorded: that stands.

        What is to be done for a call that has ended takes the claim `ENDED`: nothing is done where another
        outcome stands.
        """
        text = outcome.model_dump_json(exclude_defaults=True)
        packed = self._cipher.pack(text, _purpose(lease.task_id, lease.call_id))

        def read(standing: str | int) -> ToolReply:
            other = isinstance(standing, str) and self._parse(lease.task_id, lease.call_id, standing)
            return other or outcome

        keys = [records_key(lease.task_id), outcomes_key(lease.task_id), registry_key(lease.task_id)]
        return self._step(
            "finish", lease, keys, [self._ttl, int(lease.is_repeatable), packed, self._outcome_ttl], read
        )

    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own for a call, in place of the last one; it goes when the record goes.

        None: keep nothing any more.

        Raises:
            OvertakenError: the phase that the lease names is another attempt's.
        """
        await self.run(self.keeping(lease, call_id, value))

    def keeping(self, lease: Lease, call_id: str, value: JsonValue) -> Step[bool]:
        """Return the step of `keep`."""
        text = json.dumps(value)
        kept = "" if value is None else self._cipher.seal_text(text, _purpose(lease.task_id, call_id))
        return self._step("keep", lease, self._keys(lease), [self._ttl, call_id, kept], bool)

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
        found = cast("str | None", await self._redis.hget(records_key(task_id), f"kept {call_id}"))
        return self._value(task_id, call_id, found)

    def _keys(self, lease: Lease) -> list[str]:
        return [records_key(lease.task_id), registry_key(lease.task_id)]

    def _step(
        self,
        script: str,
        lease: Lease,
        keys: Sequence[str],
        words: Sequence[str | bytes | int],
        read: Callable[[Any], T],
    ) -> Step[T]:
        return Step(lease.task_id, f"calls/{script}.lua", keys, [lease.call_id, lease.token, *words], read)

    def _value(self, task_id: str, call_id: str, kept: str | None) -> JsonValue:
        return json.loads(self._cipher.unseal_text(kept, _purpose(task_id, call_id))) if kept else None

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
