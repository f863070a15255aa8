"""The gate of each model provider, which all workers share: rate limits, concurrency and a circuit breaker.

A call enters, and is held back while its provider is down, wants to be asked later, or has enough of ours.
What is counted goes by the clock of Redis. Nothing is counted at a provider without limits that answers: a
worker looks now and then whether it still does, and tells of its own answers when it looks.
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
"""How long a call counts that nobody renews: its worker has died."""

MAX_WAIT = 2.0
"""Seconds that a call may wait at the gate. One that has to wait for longer is held back."""

AHEAD = timedelta(seconds=6)
"""How much of a minute's rate may be taken at once; the rest is spread evenly."""

FAILURES = 5
"""So many within `FAILURE_TIME`, and no answer between them: the provider is down."""

FAILURE_TIME = timedelta(seconds=30)

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(seconds=60)
"""How long a provider that is down is not asked; each probe that fails doubles it."""

LOOK_AGAIN = timedelta(seconds=5)
"""How long a worker asks a provider without limits that answers before it looks again: so much later than
others it may learn that the provider is down, or wants to be asked for a model later."""

_LAST_WORD = 3.0
"""Seconds that leaving may take; after that the call leaves when its slot expires."""

_LOOK = 2000
"""About how many milliseconds later a call looks again whether there is a slot for it; the more calls wait
before it, the later."""

TICKET = timedelta(minutes=10)
"""How long after its turn a call finds it."""

CLOCK_SLIP = timedelta(seconds=5)
"""By so much the clock of Redis may be put back until all that is known of a provider is forgotten."""

Why = Literal["down", "asked", "rate", "slots"]
"""Why a call is held back.

"down": the provider does not answer. "asked": it wants to be asked for this model later. "rate", "slots": the
limits that were set for it.
"""

Outcome = Literal["answered", "busy", "down", "other"]

_log = structlog.get_logger()


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


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
    is_free: bool = False
    """Whether nothing of it is counted."""

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

    `slot` is how long a call counts without renewal, `clock` tells seconds.
    """

    def __init__(
        self, redis: Redis, *, slot: timedelta = SLOT, clock: Callable[[], float] = monotonic
    ) -> None:
        self._slot = slot
        self._clock = clock
        # By provider: until when which of its models may be asked without a look; when it answered last.
        self._free_until: dict[str, dict[str, float]] = {}
        self._answered: dict[str, float] = {}
        self._enter = redis.register_script(_gate_script("limits/rate.lua", "limits/enter.lua"))
        self._renew = redis.register_script(_gate_script("limits/renew.lua"))
        self._leave = redis.register_script(_gate_script("limits/leave.lua"))
        self._is_away = False

    @asynccontextmanager
    async def hold(self, chosen: ChosenModel, call: str, tokens: int) -> AsyncGenerator[Passage]:
        """Enter, and count the call as long as the block runs.

        `call` names it over all its attempts. `tokens` is about how many it takes; of more than a provider
        takes in a minute a minute's worth counts.

        Raises:
            HeldBackError: it has to wait for more than `MAX_WAIT`.
        """
        passage = Passage(chosen, call, min(tokens, chosen.provider.tokens_per_minute or tokens))
        await self._wait_to_enter(passage)
        stopped = asyncio.Event()
        renewing = None if passage.is_free else asyncio.create_task(self._renew_until(stopped, passage))
        try:
            yield passage
        except ModelError as error:
            passage.fail(error)
            raise
        finally:
            stopped.set()
            if renewing:
                renewing.cancel()
            await self._end(passage)

    async def _wait_to_enter(self, passage: Passage) -> None:
        provider, model = passage.chosen.provider, passage.chosen.model
        if self._clock() < self._free_until.get(provider.name, {}).get(model, 0):
            passage.is_free = True
            return
        keys = [*_keys(provider.name), provider_tickets_key(provider.name)]
        wait_left = MAX_WAIT
        while answer := await self._run(
            self._enter,
            keys,
            [
                passage.call,
                model,
                self._ms_since_answer(provider.name),
                _ms(self._slot),
                provider.concurrency or 0,
                _share(1, provider.requests_per_minute),
                _share(passage.tokens, provider.tokens_per_minute),
                *map(_ms, (AHEAD, CLOCK_SLIP, TICKET)),
                _LOOK,
            ],
        ):
            why, wait = cast("tuple[Why | Literal['free'], int]", answer)
            if why == "free":
                passage.is_free = True
                free_until = self._clock() + LOOK_AGAIN.total_seconds()
                self._free_until.setdefault(provider.name, {})[model] = free_until
                return
            self._free_until.pop(provider.name, None)
            delay = wait / 1000
            if why == "slots":  # not all at once
                delay *= random.uniform(0.5, 1.5)  # noqa: S311 -- no secret
            if delay > wait_left:
                raise HeldBackError(passage.chosen, why, timedelta(seconds=delay))
            wait_left -= delay
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
        since_answer = self._ms_since_answer(provider.name)
        if passage.outcome in {"answered", "busy"}:
            self._answered[provider.name] = self._clock()
        is_news = passage.outcome == "down" or passage.asked or provider.name not in self._free_until
        if passage.is_free and not is_news:
            return
        self._free_until.pop(provider.name, None)
        more = 0 if passage.used is None else passage.used - passage.tokens
        arguments = [
            passage.call,
            passage.chosen.model,
            since_answer,
            passage.outcome,
            _share(more, provider.tokens_per_minute),
            _ms(passage.asked),
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
            _log.warning("store is away: calls of models go on uncounted", error_type=type(error).__name__)
        self._is_away = True


def _gate_script(*files: str) -> str:
    return scripts_text("clock.lua", "limits/breaker.lua", *files)


def _keys(provider: str) -> list[str]:
    return [provider_key(provider), provider_failures_key(provider), provider_calls_key(provider)]


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
