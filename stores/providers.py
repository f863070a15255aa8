"""The gate before each provider of models: what it takes of us, over all workers, and whether it answers.

A call enters, and is held back while its provider is down, wants to be asked later, or has enough of ours.
What is counted goes by the clock of Redis.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

import structlog
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from everloop.models.catalogue import ChosenModel, Provider
from everloop.models.interface import ModelBusyError, ModelDownError, ModelError, ModelRefusedError
from everloop.runtime.redis import NOW, RATE
from everloop.stores.keys import (
    provider_calls_key,
    provider_failures_key,
    provider_key,
    provider_tickets_key,
)

SLOT = timedelta(seconds=15)
"""How long a call counts that nobody renews: its worker has died."""

PATIENCE = 2.0
"""Seconds that a call may wait at the gate. One that has to wait for longer is held back."""

AHEAD = timedelta(seconds=6)
"""How much of a minute's rate may be taken at once; the rest is spread evenly."""

FAILURES = 5
"""So many within `FAILURE_TIME`, and no answer between them: the provider is down."""

FAILURE_TIME = timedelta(seconds=30)

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(seconds=60)
"""How long a provider that is down is not asked; each probe that fails doubles it."""

_LAST_WORD = 3.0
"""Seconds that leaving may take; after that the call leaves when its slot expires."""

_LOOK = 2000
"""About how many milliseconds later a call looks again whether there is a slot for it; the more calls wait
before it, the later."""

TICKET = timedelta(minutes=10)
"""How long after its turn a call finds it."""

Why = Literal["down", "asked", "rate", "slots"]
"""Why a call is held back.

"down": the provider does not answer. "asked": it wants to be asked for this model later. "rate", "slots": the
limits that were set for it.
"""

Outcome = Literal["answered", "busy", "down", "other"]

_log = structlog.get_logger()


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


_CLOSE = """
local function close_breaker()
  redis.call('DEL', failures)
  return redis.call('HDEL', state, 'open_until', 'pause', 'probe') > 0 and 'closed' or ''
end
"""

_ENTER = f"""{NOW}{RATE}
-- KEYS: provider, calls, tickets. ARGV: call, model, concurrency, milliseconds of a request, of its tokens,
-- of a slot. Answers why the call has to wait, and milliseconds; nothing: it has entered.
local state, calls, tickets = unpack(KEYS)
local call, asked, time = ARGV[1], 'asked:' .. ARGV[2], now()
local function at(name) return tonumber(redis.call('HGET', state, name) or 0) end
local function keep()
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, 86400000)
  end
end
redis.call('ZREMRANGEBYSCORE', calls, '-inf', time)
redis.call('ZREMRANGEBYSCORE', tickets, '-inf', time - {_ms(TICKET)})
local open_until = at('open_until')
if open_until > time then
  return {{'down', open_until - time}}
end
local probe = redis.call('HGET', state, 'probe')
if probe and probe ~= call and redis.call('ZSCORE', calls, probe) then
  return {{'down', 5000}}
end
if at(asked) > time then
  return {{'asked', at(asked) - time}}
end
-- What has to wait has booked its turn, and finds it when it comes back: first come, first served.
local turn = tonumber(redis.call('ZSCORE', tickets, call) or 0)
if turn == 0 then
  turn = time
  for name, cost in pairs({{requests = tonumber(ARGV[4]), tokens = tonumber(ARGV[5])}}) do
    if cost > 0 then
      local wait, used_up_to = take(at(name), time, cost, {_ms(AHEAD)})
      turn = math.max(turn, time + wait)
      redis.call('HSET', state, name, used_up_to)
    end
  end
  redis.call('ZADD', tickets, turn, call)
end
keep()
if turn > time then
  return {{'rate', math.ceil(turn - time)}}
end
local most = tonumber(ARGV[3])
if most > 0 and not redis.call('ZSCORE', calls, call) and redis.call('ZCARD', calls) >= most then
  return {{'slots', {_LOOK} * (1 + math.floor(redis.call('ZRANK', tickets, call) / most))}}
end
redis.call('ZREM', tickets, call)
redis.call('ZADD', calls, time + ARGV[6], call)
if open_until > 0 then
  redis.call('HSET', state, 'probe', call)
end
keep()
return {{}}
"""

_RENEW = f"""{NOW}
-- KEYS: provider, calls, failures. ARGV: call, milliseconds of a slot, whether its reply comes. Answers
-- 'closed' if the provider was down until now.
local state, calls, failures = unpack(KEYS)
{_CLOSE}
redis.call('ZADD', calls, 'XX', now() + ARGV[2], ARGV[1])
if ARGV[3] == '1' and redis.call('HGET', state, 'probe') == ARGV[1] then
  return close_breaker()
end
return ''
"""

_LEAVE = f"""{NOW}
-- KEYS: provider, calls, failures. ARGV: call, model, what it came to, milliseconds of the tokens that it
-- took beyond those that were counted, milliseconds that the provider asks for. Answers 'closed', 'opened' or
-- nothing.
local state, calls, failures = unpack(KEYS)
local call, outcome, time = ARGV[1], ARGV[3], now()
{_CLOSE}
redis.call('ZREM', calls, call)
if tonumber(ARGV[4]) ~= 0 then
  redis.call('HINCRBYFLOAT', state, 'tokens', ARGV[4])
end
if tonumber(ARGV[5]) > 0 then
  redis.call('HSET', state, 'asked:' .. ARGV[2], time + ARGV[5])
end
if outcome == 'answered' or outcome == 'busy' then
  return close_breaker()
end
if outcome ~= 'down' then
  return ''
end
local pause = tonumber(redis.call('HGET', state, 'pause') or 0)
if pause == 0 then
  redis.call('LPUSH', failures, time)
  redis.call('LTRIM', failures, 0, {FAILURES - 1})
  redis.call('PEXPIRE', failures, {_ms(FAILURE_TIME)})
  local first = tonumber(redis.call('LINDEX', failures, {FAILURES - 1}) or 0)
  if first < time - {_ms(FAILURE_TIME)} then
    return ''
  end
elseif redis.call('HGET', state, 'probe') ~= call then
  return ''
end
pause = pause == 0 and {_ms(FIRST_PAUSE)} or math.min(2 * pause, {_ms(LONGEST_PAUSE)})
redis.call('HSET', state, 'pause', pause, 'open_until', time + pause)
redis.call('DEL', failures)
return 'opened'
"""


class HeldBackError(ModelError):
    """A call may not be made now; it was not sent. `delay` is when it may come again."""

    def __init__(self, chosen: ChosenModel, why: Why, delay: timedelta) -> None:
        super().__init__(_text(why, chosen))
        self.provider = chosen.provider.name
        self.why: Why = why
        self.delay = delay


@dataclass
class Passage:
    """A call that has entered; who makes it says what becomes of it, errors apart."""

    chosen: ChosenModel
    call: str
    tokens: int
    """About how many it takes."""
    used: int | None = None
    """How many it took; None: nobody knows."""
    outcome: Outcome = "other"
    """"answered" as soon as something of the reply has come."""
    asked: timedelta = field(default=timedelta())

    def fail(self, error: ModelError) -> None:
        """Note what an error says of the provider."""
        if isinstance(error, ModelBusyError):
            self.outcome, self.asked = "busy", error.retry_after or timedelta()
        elif isinstance(error, ModelDownError):
            self.outcome = "down"
        elif isinstance(error, ModelRefusedError):
            self.outcome = "answered"


class ProviderGates:
    """One gate for each provider. While Redis is away, everybody may pass.

    `slot` is how long a call counts without renewal.
    """

    def __init__(self, redis: Redis, *, slot: timedelta = SLOT) -> None:
        self._slot = slot
        self._enter = redis.register_script(_ENTER)
        self._renew = redis.register_script(_RENEW)
        self._leave = redis.register_script(_LEAVE)
        self._is_away = False

    @asynccontextmanager
    async def hold(self, chosen: ChosenModel, call: str, tokens: int) -> AsyncGenerator[Passage]:
        """Enter, and count the call as long as the block runs.

        `call` names it over all its attempts. `tokens` is about how many it takes; of more than a provider
        takes in a minute a minute's worth counts.

        Raises:
            HeldBackError: it has to wait for more than `PATIENCE`.
        """
        passage = Passage(chosen, call, min(tokens, chosen.provider.tokens_per_minute or tokens))
        await self._wait_to_enter(passage)
        stopped = asyncio.Event()
        renewing = asyncio.create_task(self._renew_until(stopped, passage))
        try:
            yield passage
        except ModelError as error:
            passage.fail(error)
            raise
        finally:
            stopped.set()
            renewing.cancel()
            await self._end(passage)

    async def _wait_to_enter(self, passage: Passage) -> None:
        provider, model = passage.chosen.provider, passage.chosen.model
        arguments = [
            passage.call,
            model,
            provider.concurrency or 0,
            _share(1, provider.requests_per_minute),
            _share(passage.tokens, provider.tokens_per_minute),
            _ms(self._slot),
        ]
        keys = [f(provider.name) for f in (provider_key, provider_calls_key, provider_tickets_key)]
        patience = PATIENCE
        while answer := await self._run(self._enter, keys, arguments):
            why, wait = cast("tuple[Why, int]", answer)
            delay = wait / 1000
            if why == "slots":  # not all at once
                delay *= random.uniform(0.5, 1.5)  # noqa: S311 -- no secret
            if delay > patience:
                raise HeldBackError(passage.chosen, why, timedelta(seconds=delay))
            patience -= delay
            await asyncio.sleep(delay)

    async def _renew_until(self, stopped: asyncio.Event, passage: Passage) -> None:
        """Renew until then. Redis' client may lose a cancellation in Python 3.11 (`asyncio.wait_for`)."""
        name = passage.chosen.provider.name
        while not stopped.is_set():
            await asyncio.sleep(self._slot.total_seconds() / 3)
            comes = int(passage.outcome == "answered")
            answer = await self._run(self._renew, _keys(name), [passage.call, _ms(self._slot), comes])
            _report(name, answer)

    async def _end(self, passage: Passage) -> None:
        provider = passage.chosen.provider
        more = 0 if passage.used is None else passage.used - passage.tokens
        arguments = [
            passage.call,
            passage.chosen.model,
            passage.outcome,
            _share(more, provider.tokens_per_minute),
            _ms(passage.asked),
        ]
        try:
            async with asyncio.timeout(_LAST_WORD):
                _report(provider.name, await self._run(self._leave, _keys(provider.name), arguments))
        except TimeoutError as error:
            self._note_outage(error)

    async def _run(self, script: AsyncScript, keys: list[str], arguments: list[str | int | float]) -> object:
        try:
            answer: object = await script(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            self._note_outage(error)
            return None
        self._is_away = False
        return answer

    def _note_outage(self, error: Exception) -> None:
        if not self._is_away:
            _log.warning("store is away: calls of models go on uncounted", error_type=type(error).__name__)
        self._is_away = True


def _keys(provider: str) -> list[str]:
    return [provider_key(provider), provider_calls_key(provider), provider_failures_key(provider)]


def _share(count: int, per_minute: int | None) -> float:
    """Return the milliseconds of a minute that so many use up, where there is a limit."""
    return 60_000 * count / per_minute if per_minute else 0


def _text(why: Why, chosen: ChosenModel) -> str:
    provider = chosen.provider
    match why:
        case "down":
            return f"{provider.name} is down: its last calls failed"
        case "asked":
            return f"{provider.name} wants to be asked for {chosen.model} later (429)"
        case "slots":
            return f"{provider.name} takes {provider.concurrency} at once"
        case "rate":
            return f"{provider.name} takes {_rates(provider)} a minute"


def _rates(provider: Provider) -> str:
    rates = (provider.requests_per_minute, "requests"), (provider.tokens_per_minute, "tokens")
    return " and ".join(f"{rate:,} {what}" for rate, what in rates if rate)


def _report(provider: str, change: object) -> None:
    if change == "opened":
        _log.warning("provider is down: it is not asked for a while", provider=provider)
    elif change == "closed":
        _log.info("provider answers again", provider=provider)
