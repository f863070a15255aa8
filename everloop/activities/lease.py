"""Heartbeats of activities, and the lease by which one attempt at a time works on a call."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import structlog
from redis.exceptions import RedisError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.activities.retries import retry_unanswered
from everloop.runtime.temporal.describe import find_run
from everloop.stores.scripts import Lease, OvertakenError, Step
from everloop.stores.tool_records import Claim, Claimed, ToolRecords

# Heartbeats: how Temporal learns that an activity lives, and the activity that it was cancelled.

INTERVAL = 1.0
"""Seconds between heartbeats. Cancellation reaches the activity with the answer to one."""


class Heartbeat:
    """The heartbeat of one activity attempt. It carries something on to the next one, such as counts.

    A worker that dies less than a second after a change may take that with it.
    """

    def __init__(self) -> None:
        details = activity.info().heartbeat_details
        self.carried: dict[str, Any] = dict(details[0]) if details else {}
        """What the attempt before has carried, until something is put in its place."""

    @property
    def failures(self) -> int:
        """How many failures this and earlier attempts have counted, where nothing else is carried."""
        return sum(self.carried.values())

    def count_failure(self, kind: str = "failed") -> int:
        """Return how many failures of this kind were counted, with this one."""
        self.carried[kind] = self.carried.get(kind, 0) + 1
        self.send()
        return self.carried[kind]

    def send(self) -> None:
        """Say that the activity lives; every heartbeat replaces what the one before carried."""
        if not activity.info().is_local:  # the workflow waits for a local one
            activity.heartbeat(dict(self.carried))


@asynccontextmanager
async def heartbeating() -> AsyncGenerator[Heartbeat]:
    """Send a heartbeat every second while the block runs; a shorter block costs none."""
    heartbeat = Heartbeat()
    beats = asyncio.create_task(_beat(heartbeat))
    try:
        yield heartbeat
    finally:
        beats.cancel()


async def _beat(heartbeat: Heartbeat) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        heartbeat.send()


# The lease of an attempt: waiting for it, working under it, and losing it.

TOOL_LEASE = 15.0
"""Seconds: longer than a heartbeat may be late, and than Redis takes to fail over, so that a tool whose
worker lives is never taken for lost."""

QUICK_LEASE = 8.0
"""Seconds: longer than a quick tool may take, and shorter than Temporal waits for a workflow task (10 s), so
that who comes next need not wait. It would do no harm: a quick tool may be run twice."""

PUSH_LEASE = 15.0
"""Seconds: longer than a webhook may take, so that what was sent under a lease has come within it."""

MODEL_LEASE = 10.0
"""Seconds: as long as a heartbeat may be late. Who comes too early pays for a second reply."""

RENEWAL = 1.0
"""Seconds from one renewal to the next. An attempt that was overtaken learns it with one."""

POLL = 0.25
"""Seconds between two looks at a call that another attempt works on."""

LAST_WORDS = 10.0
"""Seconds that cancelled work has to end, until it is cancelled once more."""

_LAST_WORD = 3.0
"""Seconds that the end of a lease may take; after that it ends by itself."""

_LOOK = 5
"""Renewals from one look to the next whether anybody wants what a forgotten attempt does."""

_ANSWER_TIME = 3.0

_BEGUN = -1
"""Position of no reply: a claim that finds no record of the call takes it for one that has begun."""

_EPOCH = datetime.fromtimestamp(0, UTC)

_log = structlog.get_logger()

T = TypeVar("T")

RunSteps = Callable[..., Awaitable[tuple[Any, ...]]]
"""Does steps at the keys of a task; returns what they return."""

local_began: ContextVar[datetime | None] = ContextVar("local_began", default=None)
"""When a local activity began, which its input has to tell, by the clock of Temporal's server."""


def attempt_began() -> datetime:
    """Return when Temporal's server had this attempt begin. Its count of attempts begins again after a reset.

    What it says of a local one is by the clock of this process.
    """
    return local_began.get() or activity.info().current_attempt_scheduled_time


def is_first_attempt() -> bool:
    """Whether Temporal has scheduled no attempt before, as far as it tells: it does not for a local one."""
    info = activity.info()
    return info.current_attempt_scheduled_time <= info.scheduled_time


def this_attempt(task_id: str, call_id: str, *, is_repeatable: bool = True) -> Lease:
    """Return what this attempt claims of a call."""
    info, microseconds = activity.info(), (attempt_began() - _EPOCH) // timedelta(microseconds=1)
    order = f"{microseconds}/{info.workflow_run_id}/{info.activity_id}/{info.attempt}"
    return Lease(task_id, call_id, secrets.token_hex(8), order, info.attempt, is_repeatable)


async def begin_attempt(leases: ToolRecords, task_id: str, call_id: str) -> Lease:
    """Return what this attempt at a short call writes under, which needs nobody to wait for it.

    The attempts before it write nothing from now on. A first one has none before it, but a local one may:
    where its worker is lost it begins anew.

    Raises:
        OvertakenError: a later attempt was here before.
    """
    lease, steps = begun_attempt(leases, task_id, call_id)
    if steps and (await leases.run(*steps))[0].claim is Claim.OVERTAKEN:
        raise OvertakenError
    return lease


def begun_attempt(leases: ToolRecords, task_id: str, call_id: str) -> tuple[Lease, list[Step[Claimed]]]:
    """Return the same with the steps that have to stand before what is written; see `begin_attempt`."""
    lease = this_attempt(task_id, call_id)
    is_repeated = activity.info().is_local or not is_first_attempt()
    return lease, [leases.claiming(lease, 0)] if is_repeated else []


class CallLease:
    """Lets one attempt at a time work on a call; the others wait for it.

    Temporal may forget an attempt that lives: it was away, or the worker could not reach it. Such an attempt
    goes on, bounded by its own time, as long as its task wants the call: the attempt after it waits.
    `is_repeatable`: a call that was lost is begun anew, as if nobody had begun it. One that is not goes on
    also when an operator has paused or reset it. `run_steps` runs the steps of one round trip to Redis: a
    claim is the first of them, and the end of the lease may be the last.
    """

    _asked_at: int | None = None
    """Where another attempt may have begun it, the position of the reply that asks for it."""
    _kept = ""
    """The call of whose kept value the claim asks."""

    def __init__(  # noqa: PLR0913 -- what is leased, and how
        self,
        records: ToolRecords,
        task_id: str,
        call_id: str,
        seconds: float,
        *,
        is_repeatable: bool,
        run_steps: RunSteps | None = None,
    ) -> None:
        self.lease = this_attempt(task_id, call_id, is_repeatable=is_repeatable)
        self.has_waited = False
        """Whether another attempt was found at work."""
        self.attempts = 1
        """How many attempts at the call there were, with this one."""
        self.may_repeat = True
        """Whether what attempts before this one have begun may be begun again."""
        self.is_ours = False
        """Whether it was claimed."""
        self.counts = True
        """Whether this is one of them once it is given back."""
        self._records = records
        self._run_steps = run_steps or records.run
        self._stopped = asyncio.Event()
        self._seconds = seconds
        self._is_repeatable = is_repeatable
        self._until, self._awake_at = 0.0, _now()
        self._is_lost = self._is_forgotten = self._is_ended = False
        self._is_wanted = True

    async def claim(self, *steps: Step[Any], before: Sequence[Step[Any]] = ()) -> tuple[Any, ...]:
        """Wait until nobody else works on the call; return what it is then, and what the steps return.

        They are done in the same round trip, so that they name the claims for which they are meant; those
        that stand before are done once, whoever has the call. A cancellation of the task meanwhile stops the
        attempt that works on it.

        Raises:
            OvertakenError: a later attempt was here before.
        """
        try:
            while (replies := await self._claim_surely(before, steps))[0].claim is Claim.HELD:
                before = ()
                await self._pause()
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details and details.cancel_requested:
                await _try(self._records.revoke(self.lease))
            raise
        except (RedisError, OSError):
            if self._is_repeatable:  # the claim may be done
                await self.end()
            raise
        except OvertakenError:
            self._is_lost = True
            raise
        self.is_ours = True
        self.attempts, self.may_repeat = replies[0].attempts, replies[0].may_repeat
        return replies

    async def _pause(self) -> None:
        """Pause until the next look at the call, which another attempt holds."""
        if not self.has_waited:
            _log.info("another attempt at this call is at work; waiting for it")
        self.has_waited = True
        if not self._is_repeatable:
            self._asked_at = _BEGUN
        await asyncio.sleep(POLL)
        _raise_if_cancelled()

    async def work(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Wait until nobody else works on the call, do it, and let it go; see `claim` and `hold`."""
        await self.claim()
        result = await self.hold(work())
        await self.end()
        return result

    async def hold(self, work: Coroutine[object, object, T]) -> T:
        """Work under the lease. Work that did not come to its end leaves the call to the next attempt.

        Where the next one has to wait, and Temporal, which has forgotten this one, has begun it already, it
        waits for the lease.

        Raises:
            OvertakenError: the call was taken from this attempt.
            CancelledError: the task was cancelled, or the worker stops.
        """
        working = asyncio.create_task(work)
        renewing = asyncio.create_task(self._renew_until_stopped(working))
        is_over, delay = False, None
        try:
            result = await self._to_its_end(working)
            is_over = True
        except ApplicationError as failure:
            delay = failure.next_retry_delay
            raise
        else:
            return result
        finally:
            self._stopped.set()
            renewing.cancel()
            if not is_over:
                await self.end(delay)

    async def check_task(self) -> None:
        """Pass unless this attempt stood still for longer than its lease, and nobody wants the call any more.

        Redis knows no more of a task that was deleted than if it had been emptied. No answer counts as yes.

        Raises:
            OvertakenError: nobody wants it.
        """
        if _now() - self._awake_at >= self._seconds and await _is_unwanted():
            self._is_lost, self._is_wanted = True, False
        if self._is_lost and not self._is_wanted:
            raise OvertakenError
        self._awake_at = _now()

    async def check(self, ahead: float = 0) -> None:
        """Pass if the call is ours, for so many seconds from now on.

        An attempt that was frozen has to ask. No answer counts as yes.

        Raises:
            OvertakenError: it is another attempt's, or nobody's.
        """
        await self.check_task()
        is_ours = not self._is_lost
        if is_ours and _now() + ahead >= self._until:
            with suppress(RedisError, OSError):
                is_ours = await self._renew()
        if not is_ours:
            raise OvertakenError

    async def release(self, delay: timedelta | None = None) -> None:
        """Give the call back: the next attempt is the first. It has to wait for a `delay` (see `hold`)."""
        self._until = 0.0  # what its tool has left behind has to ask from now on
        waits = delay.total_seconds() if delay and self._is_forgotten else 0
        await self._records.run(self._records.releasing(self.lease, waits, counts=self.counts))

    async def end_with(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Do steps and give the call back in one round trip; return what they return.

        There is nothing left to be done under the lease then, and it is not renewed any more.
        """
        self._stopped.set()
        *replies, is_ended = await self._run_steps(*steps, self._records.releasing(self.lease))
        self._is_ended = is_ended is not None
        return tuple(replies)

    async def end(self, delay: timedelta | None = None) -> None:
        """Let the next attempt have the call at once, or after a delay; see `hold`."""
        if not (self._is_lost or self._is_ended):
            await _try(self.release(delay) if self._is_repeatable else self._records.renew(self.lease, 0))

    def is_wanted(self) -> bool:
        """Whether somebody still wants what the call comes to, if not from this attempt."""
        return self._is_wanted

    async def _claim_surely(self, before: Sequence[Step[Any]], steps: Sequence[Step[Any]]) -> tuple[Any, ...]:
        """Claim; again where the answer is lost, of which the next attempt would know only that we began."""
        if self._is_repeatable:
            return await self._claim(before, steps)
        return await retry_unanswered(lambda: self._claim(before, steps))

    async def _claim(self, before: Sequence[Step[Any]], steps: Sequence[Step[Any]]) -> tuple[Any, ...]:
        begin = _now()
        step = self._records.claiming(self.lease, self._seconds, kept=self._kept, reply=self._asked_at)
        replies = (await self._run_steps(*before, step, *steps))[len(before) :]
        if replies[0].claim is Claim.OVERTAKEN:
            raise OvertakenError
        self._until = begin + self._seconds
        return replies

    async def _renew(self) -> bool:
        begin = _now()
        if await self._records.renew(self.lease, self._seconds):
            self._until = begin + self._seconds
            return True
        self._is_lost = not self._stopped.is_set()  # or else it may be we who have ended it
        return False

    async def _is_anothers(self) -> bool:
        """Whether a call that was taken from us is another attempt's; else it was revoked."""
        try:
            return await self._records.claim(self.lease, 0) not in {Claim.FIRST, Claim.LOST}
        except (RedisError, OSError):
            return True

    async def _renew_until_stopped(self, working: asyncio.Task[T]) -> None:
        renewals = 0
        while not self._stopped.is_set():
            await asyncio.sleep(RENEWAL)
            if self._stopped.is_set():
                return
            renewals += 1
            try:
                await self.check_task()
                is_ours = await self._renew()
            except OvertakenError:
                working.cancel()
                return
            except (RedisError, OSError) as error:
                _log.warning("lease of a call not renewed", error_type=type(error).__name__)
                continue
            if self._stopped.is_set():
                return
            if not is_ours:
                self._is_wanted = await self._is_anothers()
                working.cancel()
                return
            if self._is_forgotten and renewals % _LOOK == 0 and await _is_unwanted():
                _log.info("nobody wants the call any more; an attempt that Temporal has forgotten stops")
                self._is_wanted = False
                working.cancel()
                return

    async def _to_its_end(self, working: asyncio.Task[T]) -> T:
        while True:
            try:
                if not self._is_forgotten:
                    _raise_if_cancelled()
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                if working.cancelled():
                    raise (OvertakenError() if self._is_lost else asyncio.CancelledError()) from None
                if not self._goes_on():
                    await _end(working)
                    raise
                self._is_forgotten = True
                if this := asyncio.current_task():
                    this.uncancel()

    def _goes_on(self) -> bool:
        """Whether it is cancelled only because Temporal has forgotten it, or an operator touched it."""
        details = activity.cancellation_details()
        if (
            activity.info().is_local
            or details is None
            or details.cancel_requested
            or activity.is_worker_shutdown()
        ):
            return False
        was_touched = not self._is_repeatable and (details.paused or details.reset)
        return details.not_found or details.timed_out or was_touched


async def _end(working: asyncio.Task[Any]) -> None:
    """Cancel work until it has ended: it may lose a cancellation, as that of a claim may get lost.

    How it ends is not told: it may fail for having been cancelled, and how the attempt ends is reported once.
    """
    while not working.done():
        working.cancel()
        with suppress(asyncio.CancelledError):  # whoever ends the worker waits for the work, too
            await asyncio.wait({working}, timeout=LAST_WORDS)
    if not working.cancelled():
        working.exception()


def _raise_if_cancelled() -> None:
    """Redis' client may have lost a cancellation."""
    if activity.is_cancelled():
        raise asyncio.CancelledError


async def _is_unwanted() -> bool:
    """Whether the workflow has ended in all its runs, or has cancelled this call; no answer is neither.

    After a standstill of Temporal it may be the SDK alone that takes an attempt for lost. It has told so, and
    tells nothing more: not of a cancellation that Temporal answers to the next heartbeats.
    """
    info = activity.info()
    try:
        async with asyncio.timeout(_ANSWER_TIME):
            run = await find_run(activity.client(), info.workflow_id or "")
    except (TimeoutError, RPCError, RuntimeError):  # RuntimeError: no client, or no connection
        return False
    if run is None or not run.is_running:
        return True
    return run.run_id == info.workflow_run_id and info.activity_id in run.cancelled_calls


async def _try(ending: Awaitable[object]) -> None:
    """End a lease if that works soon."""
    try:
        async with asyncio.timeout(_LAST_WORD):
            await ending
    except (RedisError, OSError) as error:
        _log.warning("lease of a call not ended", error_type=type(error).__name__)


def _now() -> float:
    return asyncio.get_running_loop().time()
