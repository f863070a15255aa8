"""The gate of each model provider, shared by all workers: rate limits, concurrency and a circuit breaker.

A call enters unless its provider is down, has asked for a pause, or a limit is reached. Times are by the
clock of Redis. Nothing is counted for a provider without limits while it answers: a worker only checks now
and then whether it is down, and reports its own answers in these checks.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Literal, cast

import structlog
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from everloop.models.catalogue import ChosenModel, Provider
from everloop.models.interface import ModelBusyError, ModelDownError, ModelError, ModelRefusedError
from everloop.stores.keys import (
    provider_calls_key,
    provider_failures_key,
    provider_key,
    provider_tickets_key,
)
from everloop.stores.scripts import scripts_text

SLOT = timedelta(seconds=15)
"""Time for which a call counts without renewal. Without one its worker has died."""

MAX_WAIT = 2.0
"""Seconds that a call may wait at the gate. A call that has to wait longer is held back."""

AHEAD = timedelta(seconds=6)
"""Part of a minute's rate that may be used at once. The rest is spread evenly."""

FAILURES = 5
"""Failures within `FAILURE_TIME`, without an answer between them, after which a provider is down."""

FAILURE_TIME = timedelta(seconds=30)

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(seconds=60)
"""Pause of calls to a provider that is down. Each failed probe doubles it."""

LOOK_AGAIN = timedelta(seconds=5)
"""Interval of a worker's checks of a provider without limits that answers: its delay in finding out that the
provider is down, or has asked for a pause of a model."""

_LAST_WORD = 3.0
"""Seconds that leaving may take. After that the call leaves when its slot expires."""

_LOOK = 2000
"""Milliseconds, roughly, until a call looks for a slot again. It grows with the calls that wait before it."""

TICKET = timedelta(minutes=10)
"""Time after its turn for which a call's ticket is valid."""

CLOCK_SLIP = timedelta(seconds=5)
"""A jump of Redis' clock that is tolerated. After a larger one the state of the provider is reset."""

Why = Literal["down", "asked", "rate", "slots"]
"""The reason why a call is held back.

"down": the provider does not answer. "asked": it has asked for a pause of this model. "rate", "slots": the
configured limits.
"""

Outcome = Literal["answered", "busy", "down", "other"]

_log = structlog.get_logger()


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


class HeldBackError(ModelError):
    """A call may not be made now; it was not sent. `delay` is the time until it may be tried again."""

    def __init__(self, chosen: ChosenModel, why: Why, delay: timedelta) -> None:
        super().__init__(_text(why, chosen))
        self.provider = chosen.provider.name
        self.why: Why = why
        self.delay = delay


@dataclass
class ProviderCall:
    """A call that has entered. The caller sets its outcome, apart from errors."""

    chosen: ChosenModel
    call: str
    tokens: int
    """Estimated tokens of the call."""
    used: int | None = None
    """Actual tokens of the call, None if unknown."""
    outcome: Outcome = "other"
    """"answered" from the first chunk of the reply on."""
    retry_after: timedelta = field(default=timedelta())
    is_free: bool = False
    """True if the call is not counted."""

    def fail(self, error: ModelError) -> None:
        """Set the outcome from an error."""
        if isinstance(error, ModelBusyError):
            self.outcome, self.retry_after = "busy", error.retry_after or timedelta()
        elif isinstance(error, ModelDownError):
            self.outcome = "down"
        elif isinstance(error, ModelRefusedError):
            self.outcome = "answered"


class ProviderGates:
    """One gate for each provider. During an outage of Redis all calls pass.

    `slot` is how long a call counts without renewal, `clock` returns seconds.
    """

    def __init__(
        self, redis: Redis, *, slot: timedelta = SLOT, clock: Callable[[], float] = monotonic
    ) -> None:
        self._slot = slot
        self._clock = clock
        # By provider: until when its models may be called without a check, and when it answered last.
        self._free_until: dict[str, dict[str, float]] = {}
        self._answered: dict[str, float] = {}
        self._enter = redis.register_script(_gate_script("limits/rate.lua", "limits/enter.lua"))
        self._renew = redis.register_script(_gate_script("limits/renew.lua"))
        self._leave = redis.register_script(_gate_script("limits/leave.lua"))
        self._is_away = False

    @asynccontextmanager
    async def hold(self, chosen: ChosenModel, call: str, tokens: int) -> AsyncGenerator[ProviderCall]:
        """Enter, and count the call as long as the block runs.

        `call` names it over all its attempts. `tokens` is an estimate. It is limited to the provider's tokens
        per minute.

        Raises:
            HeldBackError: The call has to wait for more than `MAX_WAIT`.
        """
        entered = ProviderCall(chosen, call, min(tokens, chosen.provider.tokens_per_minute or tokens))
        await self._wait_to_enter(entered)
        stopped = asyncio.Event()
        renewing = None if entered.is_free else asyncio.create_task(self._renew_until(stopped, entered))
        try:
            yield entered
        except ModelError as error:
            entered.fail(error)
            raise
        finally:
            stopped.set()
            if renewing:
                renewing.cancel()
            await self._end(entered)

    async def _wait_to_enter(self, entering: ProviderCall) -> None:
        provider, model = entering.chosen.provider, entering.chosen.model
        if self._clock() < self._free_until.get(provider.name, {}).get(model, 0):
            entering.is_free = True
            return
        keys = [*_keys(provider.name), provider_tickets_key(provider.name)]
        wait_left = MAX_WAIT
        while answer := await self._run(
            self._enter,
            keys,
            [
                entering.call,
                model,
                self._ms_since_answer(provider.name),
                _ms(self._slot),
                provider.concurrency or 0,
                _share(1, provider.requests_per_minute),
                _share(entering.tokens, provider.tokens_per_minute),
                *map(_ms, (AHEAD, CLOCK_SLIP, TICKET)),
                _LOOK,
            ],
        ):
            why, wait = cast("tuple[Why | Literal['free'], int]", answer)
            if why == "free":
                entering.is_free = True
                free_until = self._clock() + LOOK_AGAIN.total_seconds()
                self._free_until.setdefault(provider.name, {})[model] = free_until
                return
            self._free_until.pop(provider.name, None)
            delay = wait / 1000
            if why == "slots":  # spread the calls
                delay *= random.uniform(0.5, 1.5)  # noqa: S311 -- no secret
            if delay > wait_left:
                raise HeldBackError(entering.chosen, why, timedelta(seconds=delay))
            wait_left -= delay
            await asyncio.sleep(delay)

    async def _renew_until(self, stopped: asyncio.Event, entered: ProviderCall) -> None:
        """Renew until then. Redis' client may lose a cancellation in Python 3.11 (`asyncio.wait_for`)."""
        name = entered.chosen.provider.name
        while not stopped.is_set():
            await asyncio.sleep(self._slot.total_seconds() / 3)
            comes = int(entered.outcome == "answered")
            answer = await self._run(self._renew, _keys(name), [entered.call, _ms(self._slot), comes])
            _report(name, answer)

    async def _end(self, entered: ProviderCall) -> None:
        provider = entered.chosen.provider
        since_answer = self._ms_since_answer(provider.name)
        if entered.outcome in {"answered", "busy"}:
            self._answered[provider.name] = self._clock()
        is_news = entered.outcome == "down" or entered.retry_after or provider.name not in self._free_until
        if entered.is_free and not is_news:
            return
        self._free_until.pop(provider.name, None)
        more = 0 if entered.used is None else entered.used - entered.tokens
        arguments = [
            entered.call,
            entered.chosen.model,
            since_answer,
            entered.outcome,
            _share(more, provider.tokens_per_minute),
            _ms(entered.retry_after),
            FAILURES,
            *map(_ms, (FAILURE_TIME, FIRST_PAUSE, LONGEST_PAUSE)),
        ]
        try:
            async with asyncio.timeout(_LAST_WORD):
                _report(provider.name, await self._run(self._leave, _keys(provider.name), arguments))
        except TimeoutError as error:
            self._note_outage(error)

    def _ms_since_answer(self, provider: str) -> int:
        answered = self._answered.get(provider)
        return -1 if answered is None else round(1000 * (self._clock() - answered))

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
            _log.warning("store is unavailable: model calls are not counted", error_type=type(error).__name__)
        self._is_away = True


def _gate_script(*files: str) -> str:
    return scripts_text("clock.lua", "limits/breaker.lua", *files)


def _keys(provider: str) -> list[str]:
    return [provider_key(provider), provider_failures_key(provider), provider_calls_key(provider)]


def _share(count: int, per_minute: int | None) -> float:
    """Return the milliseconds of a minute that so many use up, 0 without a limit."""
    return 60_000 * count / per_minute if per_minute else 0


def _text(why: Why, chosen: ChosenModel) -> str:
    provider = chosen.provider
    match why:
        case "down":
            return f"{provider.name} is down: its last calls failed"
        case "asked":
            return f"{provider.name} has asked for a pause of {chosen.model} (429)"
        case "slots":
            return f"{provider.name} takes {provider.concurrency} at once"
        case "rate":
            return f"{provider.name} takes {_rates(provider)} a minute"


def _rates(provider: Provider) -> str:
    rates = (provider.requests_per_minute, "requests"), (provider.tokens_per_minute, "tokens")
    return " and ".join(f"{rate:,} {what}" for rate, what in rates if rate)


def _report(provider: str, change: object) -> None:
    if change == "opened":
        _log.warning("provider is down: its calls are paused", provider=provider)
    elif change == "closed":
        _log.info("provider answers again", provider=provider)
