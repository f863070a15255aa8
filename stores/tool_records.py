"""What is known of tool calls: the record that keeps an effect from happening twice."""

import json
from datetime import timedelta
from typing import cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from redis.asyncio import Redis

from everloop.runtime.redis import NOW, cipher_of
from everloop.stores.keys import tool_record_key
from everloop.stores.leases import Claim, Lease, OvertakenError
from everloop.stores.retention import HOLD, RECORD_TTL, hold_keys
from everloop.workflows.contract.calls import ToolReply
from everloop.workflows.contract.payloads import HIDE_VALUES

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


# Tool records in Redis: a hash for each call.
#
# Its fields: `holder`, the attempt whose the call is ('': given back); `until`, when its lease ends, in
# milliseconds of Redis' clock; `claim`, what that attempt was answered; `order`, of the latest attempt that
# has claimed it; `outcome`; `kept`.

_RELEASED_TTL = 600
"""Seconds for which is known that a call was given back of which nothing else is known: longer than an
attempt may be frozen, or its renewal under way, which would otherwise take it again."""

_COMMON = f"""{HOLD}{NOW}
local function is_ours(key, token)  -- or nobody's, where Redis was emptied
  local holder = redis.call('HGET', key, 'holder')
  return not holder or holder == token
end
"""

_CLAIM = """
-- ARGV: token, milliseconds of the lease, time to live in seconds, order.
local fields = redis.call('HMGET', KEYS[1], 'outcome', 'holder', 'until', 'claim', 'order')
local outcome, holder, till, claim, order = unpack(fields)
if order and order > ARGV[4] then return 'OVERTAKEN' end
hold(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
if outcome then  -- whoever is still at work on it was overtaken
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'order', ARGV[4])
  return 'FINISHED'
end
if till and holder ~= ARGV[1] and now() < tonumber(till) then return 'HELD' end
if holder ~= ARGV[1] then  -- else the answer to the same claim was lost
  claim = (holder and holder ~= '') and 'LOST' or 'FIRST'
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until', now() + ARGV[2], 'claim', claim, 'order', ARGV[4])
hold(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
return claim
"""

_RENEW = """
-- ARGV: token, milliseconds of the lease, time to live in seconds.
if not is_ours(KEYS[1], ARGV[1]) then return 0 end
if redis.call('HEXISTS', KEYS[1], 'outcome') == 0 then
  redis.call('HSETNX', KEYS[1], 'claim', 'LOST')
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until', now() + ARGV[2])
  hold(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
end
return 1
"""

_RELEASE = """
-- ARGV: token, time to live in seconds, and of a record that says nothing else; milliseconds to be held for.
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return end
redis.call('HSET', KEYS[1], 'holder', '')
redis.call('HDEL', KEYS[1], 'until', 'claim')
if tonumber(ARGV[4]) > 0 then redis.call('HSET', KEYS[1], 'until', now() + ARGV[4]) end
if redis.call('HLEN', KEYS[1]) == 2 then  -- that, and the order
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  redis.call('HDEL', KEYS[2], KEYS[1])  -- nothing that has to live as long as the task
else
  hold(KEYS[1], KEYS[2], KEYS[3], ARGV[2])
end
"""

_REVOKE = """
-- ARGV: token, time to live in seconds, order.
if redis.call('HEXISTS', KEYS[1], 'outcome') == 1 then return end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'until', 0, 'claim', 'LOST', 'order', ARGV[3])
hold(KEYS[1], KEYS[2], KEYS[3], ARGV[2])
"""

_FINISH = """
-- ARGV: token, outcome, time to live in seconds.
-- Returns the outcome that stands, nil if the call is another's.
if not is_ours(KEYS[1], ARGV[1]) then return nil end
local outcome = redis.call('HGET', KEYS[1], 'outcome')
if outcome then return outcome end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'outcome', ARGV[2])
redis.call('HDEL', KEYS[1], 'until', 'claim')
hold(KEYS[1], KEYS[2], KEYS[3], ARGV[3])
return ARGV[2]
"""

_KEEP = """
-- KEYS: the record of the phase, that of the call, those for `hold`.
-- ARGV: token, value (empty: none any more), time to live in seconds.
if not is_ours(KEYS[1], ARGV[1]) then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[2], 'kept')
  return 1
end
redis.call('HSET', KEYS[2], 'kept', ARGV[2])
hold(KEYS[2], KEYS[3], KEYS[4], ARGV[3])
return 1
"""


class ToolRecords:
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people comes in phases, each with a record under an id of its own; the outcome of a phase
    is a result or a question. Beside that, a call keeps one JSON value of its tool's own; a model call keeps
    its reply there until plugins have judged it. Only the attempt that holds a call writes anything of it.

    A record is also the lease of its call: it names the attempt that holds it, and until when, by the clock
    of the store. One that has ended still says whose the call is, until another attempt claims it: what was
    only slow goes on, and what was overtaken is refused. Every call may be repeated when its answer was lost.

    Each call is one script and one round trip.

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
        self._claim = redis.register_script(_COMMON + _CLAIM)
        self._renew = redis.register_script(_COMMON + _RENEW)
        self._release = redis.register_script(_COMMON + _RELEASE)
        self._revoke = redis.register_script(_COMMON + _REVOKE)
        self._finish = redis.register_script(_COMMON + _FINISH)
        self._keep = redis.register_script(_COMMON + _KEEP)

    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Take a call that nobody works on, for so many seconds."""
        arguments = [lease.token, int(seconds * 1000), self._ttl, lease.order]
        answer = await self._claim(keys=_keys(lease), args=arguments)
        return Claim[cast("str", answer)]

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold the call for so many seconds from now (0: end the lease); return whether it is ours still.

        A call of which the store knows nothing, because it was emptied, becomes ours again.
        """
        return bool(await self._renew(keys=_keys(lease), args=[lease.token, int(seconds * 1000), self._ttl]))

    async def release(self, lease: Lease, seconds: float = 0) -> None:
        """Give a call back that is ours and has ended without an outcome: the next claim is the first.

        For so many seconds it stays held all the same.
        """
        arguments = [lease.token, self._ttl, _RELEASED_TTL, int(seconds * 1000)]
        await self._release(keys=_keys(lease), args=arguments)

    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from whoever works on it, who is to stop; nobody holds it then."""
        await self._revoke(keys=_keys(lease), args=[lease.token, self._ttl, lease.order])

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
        standing = await self._finish(keys=_keys(lease), args=[lease.token, sealed, self._ttl])
        if standing is None:
            raise OvertakenError
        return self._parse(lease.task_id, lease.call_id, cast("str", standing)) or outcome

    async def keep(self, lease: Lease, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own for a call, in place of the last one; it goes when the record goes.

        None: keep nothing any more.

        Raises:
            OvertakenError: the phase that the lease names is another attempt's.
        """
        keys = [_key(lease), tool_record_key(lease.task_id, call_id), *hold_keys(lease.task_id)]
        text = json.dumps(value)
        kept = "" if value is None else self._cipher.seal_text(text, _purpose(lease.task_id, call_id))
        if not await self._keep(keys=keys, args=[lease.token, kept, self._ttl]):
            raise OvertakenError

    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
        kept = cast("str | None", await self._redis.hget(tool_record_key(task_id, call_id), "kept"))
        if kept is None:
            return None
        return cast("JsonValue", json.loads(self._cipher.unseal_text(kept, _purpose(task_id, call_id))))

    def _parse(self, task_id: str, call_id: str, outcome: str) -> ToolReply | None:
        text = self._cipher.unseal_text(outcome, _purpose(task_id, call_id))
        try:
            return OUTCOME_ADAPTER.validate_json(text)
        except ValidationError:
            return None


def _key(lease: Lease) -> str:
    return tool_record_key(lease.task_id, lease.call_id)


def _keys(lease: Lease) -> list[str]:
    return [_key(lease), *hold_keys(lease.task_id)]


def _purpose(task_id: str, call_id: str) -> str:
    return f"tool call {task_id} {call_id}"
