"""Records of tool calls, which prevent that an effect happens twice."""

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
    """Return the id of the model call for the reply at a position (`claim.lua` looks for it)."""
    return f"reply {run_id} {position}.{tries}"


BEGUN = "FIRST AGAIN"
"""The claims that allow this attempt to do the call: it is the first, or was lost and may be repeated."""

ENDED = "DONE"
"""The claim of a call whose outcome this attempt has recorded."""


class Claim(Enum):
    """Answer to a claim of a call."""

    FIRST = auto()
    """This attempt holds the call, which no other has started, or whose attempt released it."""
    LOST = auto()
    """This attempt holds the call. An earlier one started it without an outcome, and its lease has ended."""
    HELD = auto()
    """Another attempt holds the call, and its lease has not ended."""
    FINISHED = auto()
    """The call has an outcome."""
    OVERTAKEN = auto()
    """A later attempt has claimed the call."""


class Claimed(NamedTuple):
    """The result of a claim: the number of attempts, and the outcome if there is a readable one.

    `attempts` is greater than for any earlier attempt, and the same for each claim by one attempt.
    `may_repeat`: started work may be repeated, according to every attempt that started it. `kept` is the
    stored value of a call.
    """

    claim: Claim
    attempts: int = 1
    may_repeat: bool = True
    outcome: ToolReply | None = None
    kept: JsonValue = None


class ToolRecords:
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people has phases, each with a record under an id of its own. The outcome of a phase is a
    result or a question. A call also stores one JSON value of its tool; a model call stores its reply there
    until plugins have judged it. Only the attempt that holds a call writes to its record.

    A record is also the lease of its call: the attempt that holds it, and the end by the clock of the store.
    An ended lease still names its attempt until another one claims the call: an attempt that was only slow
    continues, and one that was overtaken is refused. Every operation may be repeated after a lost answer.

    Each operation is one step, in a round trip of its own or together with others.

    `ttl` counts from the last new call, or from the end of a task that was open (default 7 days). So does
    `outcome_ttl`, after which only the end of a call is stored, no longer its outcome (default 1 day).

    The loss after a crash of Redis depends on its own setting: with `appendfsync always` none, with
    `everysec` up to two seconds of acknowledged claims.

    An expired or unreadable outcome, for example of a newer version, remains valid, but shows only that the
    call was started.
    """

    def __init__(self, redis: Redis, *, ttl: timedelta = RECORD_TTL, outcome_ttl: timedelta = GRACE) -> None:
        self._cipher = cipher_of(redis)
        self._ttl, self._outcome_ttl = int(ttl.total_seconds()), int(outcome_ttl.total_seconds())
        self._redis = redis

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Claim a call that no other attempt holds, for so many seconds."""
        return (await self.run(self.claiming(lease, seconds)))[0].claim

    async def run(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Run scripts at the keys of one task in one round trip. See `run_scripts`."""
        return await run_scripts(self._redis, *steps)

    def claiming(
        self, lease: Lease, seconds: float, *, kept: str = "", reply: int | None = None
    ) -> Step[Claimed]:
        """Return the step of `claim`. With `kept` it also reads the stored value of this call.

        `reply`: the position of the model's reply that asks for the call, if another attempt may have started
        it. If there is a record of neither, Redis was emptied, and the call counts as lost.
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
        """Extend the lease by so many seconds (0: end it); return whether this attempt holds the call.

        A call without a record, because the store was emptied, is claimed again.
        """
        words = [self._ttl, int(lease.is_repeatable), int(seconds * 1000)]
        return (await self.run(self._step("renew", lease, self._keys(lease), words, bool)))[0]

    def releasing(self, lease: Lease, seconds: float = 0, *, counts: bool = True) -> Step[bool]:
        """Return the step that releases a call without an outcome.

        The next claim is the first, and has to wait for so many seconds. `counts`: the attempt is counted.
        """
        words = [int(seconds * 1000), int(counts)]
        return self._step("release", lease, [records_key(lease.task_id)], words, bool)

    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from the attempt that holds it, which has to stop."""
        await self.run(
            self._step(
                "revoke", lease, self._keys(lease), [lease.order, self._ttl, int(lease.is_repeatable)], bool
            )
        )

    def finishing(self, lease: Lease, outcome: ToolReply) -> Step[ToolReply]:
        """Return the step that records an outcome, and reads the first one recorded, which is the valid one.

        Steps for a call that has ended name the claim `ENDED`: they do nothing if another outcome is valid.
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
        """Store a value of the tool's own for a call, replacing the last one. It expires with the record.

        None deletes it.

        Raises:
            OvertakenError: Another attempt holds the phase of the lease.
        """
        await self.run(self.keeping(lease, call_id, value))

    def keeping(self, lease: Lease, call_id: str, value: JsonValue) -> Step[bool]:
        """Return the step of `keep`."""
        text = json.dumps(value)
        sealed = "" if value is None else self._cipher.seal_text(text, _purpose(lease.task_id, call_id))
        return self._step("keep", lease, self._keys(lease), [self._ttl, call_id, sealed], bool)

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the stored value, or None."""
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
        except ValueError:  # includes pydantic's
            return None


class ToolResults:
    """digest → text: cached results of tools for the same arguments. Losing one costs another run."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._cipher = cipher_of(redis)

    async def get(self, digest: str) -> str | None:
        """Return the cached text, or None."""
        found = cast("str | None", await self._redis.get(tool_result_key(digest)))
        return None if found is None else json.loads(self._cipher.unseal_text(found, _result_purpose(digest)))

    async def put(self, digest: str, text: str, life: timedelta) -> None:
        """Cache a text for some time, replacing an earlier one."""
        sealed = self._cipher.seal_text(json.dumps(text), _result_purpose(digest))
        await self._redis.set(tool_result_key(digest), sealed, px=life)


def _purpose(task_id: str, call_id: str) -> str:
    return f"tool call {task_id} {call_id}"


def _result_purpose(digest: str) -> str:
    return f"tool result {digest}"
