"""Heartbeats of activities, and the lease that lets one attempt at a time work on a call."""

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

from everloop.activities.store_retries import retry_unanswered
from everloop.runtime.temporal.describe import find_run
from everloop.stores.scripts import Lease, OvertakenError, Step
from everloop.stores.tool_records import Claim, Claimed, ToolRecords

# Heartbeats tell Temporal that the activity lives, and bring cancellations to the activity.

INTERVAL = 1.0
"""Seconds between heartbeats. The answer to a heartbeat carries the cancellation."""


class ActivityHeartbeat:
    """The heartbeat of one activity attempt. It carries values such as counts to the next attempt.

    A change of these values is lost if the worker dies less than a second after it.
    """

    def __init__(self) -> None:
        details = activity.info().heartbeat_details
        self.carried: dict[str, Any] = dict(details[0]) if details else {}
        """Values of the attempt before, until they are replaced."""

    @property
    def failures(self) -> int:
        """Failures counted by this and earlier attempts. Only valid if nothing else is carried."""
        return sum(self.carried.values())

    def count_failure(self, kind: str = "failed") -> int:
        """Count a failure of this kind and return the new count."""
        self.carried[kind] = self.carried.get(kind, 0) + 1
        self.send()
        return self.carried[kind]

    def send(self) -> None:
        """Send a heartbeat. Its values replace those of the heartbeat before."""
        if not activity.info().is_local:  # the workflow waits for a local one
            activity.heartbeat(dict(self.carried))


@asynccontextmanager
async def heartbeating() -> AsyncGenerator[ActivityHeartbeat]:
    """Send a heartbeat every second while the block runs. A shorter block sends none."""
    heartbeat = ActivityHeartbeat()
    beats = asyncio.create_task(_beat(heartbeat))
    try:
        yield heartbeat
    finally:
        beats.cancel()


async def _beat(heartbeat: ActivityHeartbeat) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        heartbeat.send()


# The lease of an attempt: acquire, hold, lose.

TOOL_LEASE = 15.0
"""Seconds. Longer than the delay of a heartbeat and than a failover of Redis, so that a tool on a live worker
is never considered lost."""

QUICK_LEASE = 8.0
"""Seconds. Longer than a quick tool, and shorter than Temporal's timeout of a workflow task (10 s), so that
the next attempt need not wait. Losing it early is harmless: a quick tool may run twice."""

PUSH_LEASE = 15.0
"""Seconds. Longer than the timeout of a webhook, so that a post ends within its lease."""

MODEL_LEASE = 10.0
"""Seconds. As long as the delay of a heartbeat. Taking over too early costs a second reply."""

RENEWAL = 1.0
"""Seconds between renewals. An overtaken attempt finds out at the next one."""

POLL = 0.25
"""Seconds between polls of a call that another attempt holds."""

LAST_WORDS = 10.0
"""Seconds that cancelled work has to end before it is cancelled once more."""

_LAST_WORD = 3.0
"""Seconds that ending a lease may take. After that it expires."""

_LOOK = 5
"""Renewals between checks whether the result of a forgotten attempt is still needed."""

_ANSWER_TIME = 3.0

_BEGUN = -1
"""A position without a reply: a claim that finds no record treats the call as started."""

_EPOCH = datetime.fromtimestamp(0, UTC)

_log = structlog.get_logger()

T = TypeVar("T")

RunSteps = Callable[..., Awaitable[tuple[Any, ...]]]
"""Runs script steps at the keys of a task and returns their results."""

local_began: ContextVar[datetime | None] = ContextVar("local_began", default=None)
"""Start of a local activity by the clock of Temporal's server. Its input has to carry it."""


def attempt_began() -> datetime:
    """Return when Temporal's server started this attempt. The number of an attempt restarts after a reset.

    For a local activity it is the clock of this process.
    """
    return local_began.get() or activity.info().current_attempt_scheduled_time


def is_first_attempt() -> bool:
    """True if Temporal has scheduled no earlier attempt. Not reliable for local activities."""
    info = activity.info()
    return info.current_attempt_scheduled_time <= info.scheduled_time


def this_attempt(task_id: str, call_id: str, *, is_repeatable: bool = True) -> Lease:
    """Return the lease that this attempt claims."""
    info, microseconds = activity.info(), (attempt_began() - _EPOCH) // timedelta(microseconds=1)
    order = f"{microseconds}/{info.workflow_run_id}/{info.activity_id}/{info.attempt}"
    return Lease(task_id, call_id, secrets.token_hex(8), order, info.attempt, is_repeatable)


async def begin_attempt(leases: ToolRecords, task_id: str, call_id: str) -> Lease:
    """Return the lease for the writes of a short call, without waiting for another attempt.

    Earlier attempts cannot write from now on. A first attempt has no earlier one, unless it is local: a local
    activity starts again when its worker is lost.

    Raises:
        OvertakenError: A later attempt has claimed the call.
    """
    lease, steps = begun_attempt(leases, task_id, call_id)
    if steps and (await leases.run(*steps))[0].claim is Claim.OVERTAKEN:
        raise OvertakenError
    return lease


def begun_attempt(leases: ToolRecords, task_id: str, call_id: str) -> tuple[Lease, list[Step[Claimed]]]:
    """Return the lease, and the steps that have to precede the writes. See `begin_attempt`."""
    lease = this_attempt(task_id, call_id)
    is_repeated = activity.info().is_local or not is_first_attempt()
    return lease, [leases.claiming(lease, 0)] if is_repeated else []


class CallLease:
    """Lets one attempt at a time work on a call; the others wait for it.

    Temporal may forget an attempt that lives, after an outage of its own or of the network. Such an attempt
    continues, within its own time limit, as long as its task needs the call, and the next attempt waits.
    `is_repeatable`: a lost call is started again, as if it had not been started. A call that is not
    repeatable also continues when an operator has paused or reset it. `run_steps` runs the steps of one round
    trip to Redis: a claim is the first of them, and the end of the lease may be the last.
    """

    _reply_position: int | None = None
    """Position of the reply that asks for the call, if another attempt may have started the call."""
    _kept = ""
    """The call whose stored value the claim reads."""

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
        """True if another attempt held the call."""
        self.attempts = 1
        """Number of attempts at the call, including this one."""
        self.may_repeat = True
        """True if work that earlier attempts have started may be repeated."""
        self.is_ours = False
        """True if this attempt has claimed the call."""
        self.counts = True
        """True if this attempt is counted after it releases the call."""
        self._records = records
        self._run_steps = run_steps or records.run
        self._stopped = asyncio.Event()
        self._seconds = seconds
        self._is_repeatable = is_repeatable
        self._until, self._awake_at = 0.0, _now()
        self._is_lost = self._is_forgotten = self._is_ended = False
        self._is_needed = True

    async def claim(self, *steps: Step[Any], before: Sequence[Step[Any]] = ()) -> tuple[Any, ...]:
        """Wait until no other attempt holds the call; return the claim, and the results of the steps.

        The steps run in the same round trip, so they name the claims for which they apply. The steps in
        `before` run once, whichever attempt holds the call. A cancellation of the task meanwhile stops the
        attempt that holds the call.

        Raises:
            OvertakenError: A later attempt has claimed the call.
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
            if self._is_repeatable:  # the claim may have been applied
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
            _log.info("another attempt holds this call; waiting for it")
        self.has_waited = True
        if not self._is_repeatable:
            self._reply_position = _BEGUN
        await asyncio.sleep(POLL)
        _raise_if_cancelled()

    async def work(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Claim the call, do the work, and release the call. See `claim` and `hold`."""
        await self.claim()
        result = await self.hold(work())
        await self.end()
        return result

    async def hold(self, work: Coroutine[object, object, T]) -> T:
        """Work under the lease. Unfinished work leaves the call to the next attempt.

        If the next attempt has to be delayed and Temporal, which has forgotten this one, has already started
        it, it waits for the lease.

        Raises:
            OvertakenError: Another attempt has taken the call, or it was revoked.
            CancelledError: The task was cancelled, or the worker stops.
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
        """End an attempt whose lease has expired if Temporal no longer needs its call.

        Redis looks the same after the deletion of a task as after a loss of its data, so Temporal is asked.
        No answer counts as needed.

        Raises:
            OvertakenError: The call is no longer needed.
        """
        if _now() - self._awake_at >= self._seconds and await _is_unwanted():
            self._is_lost, self._is_needed = True, False
        if self._is_lost and not self._is_needed:
            raise OvertakenError
        self._awake_at = _now()

    async def check(self, ahead: float = 0) -> None:
        """Return if this attempt holds the call, for so many seconds from now on.

        An attempt that was suspended asks Redis. No answer counts as held.

        Raises:
            OvertakenError: Another attempt holds the call, or it was revoked.
        """
        await self.check_task()
        is_ours = not self._is_lost
        if is_ours and _now() + ahead >= self._until:
            with suppress(RedisError, OSError):
                is_ours = await self._renew()
        if not is_ours:
            raise OvertakenError

    async def release(self, delay: timedelta | None = None) -> None:
        """Release the call: the next attempt is the first, and waits for a `delay` (see `hold`)."""
        self._until = 0.0  # leftover work of the tool has to ask Redis from now on
        waits = delay.total_seconds() if delay and self._is_forgotten else 0
        await self._records.run(self._records.releasing(self.lease, waits, counts=self.counts))

    async def end_with(self, *steps: Step[Any]) -> tuple[Any, ...]:
        """Run steps and release the call in one round trip; return the results of the steps.

        The work under the lease has ended by then, and the lease is not renewed any more.
        """
        self._stopped.set()
        *replies, is_ended = await self._run_steps(*steps, self._records.releasing(self.lease))
        self._is_ended = is_ended is not None
        return tuple(replies)

    async def end(self, delay: timedelta | None = None) -> None:
        """End the lease: the next attempt gets the call at once, or after a delay. See `hold`."""
        if not (self._is_lost or self._is_ended):
            await _try(self.release(delay) if self._is_repeatable else self._records.renew(self.lease, 0))

    def is_wanted(self) -> bool:
        """True if the result of the call is still needed, from this or another attempt."""
        return self._is_needed

    async def _claim_surely(self, before: Sequence[Step[Any]], steps: Sequence[Step[Any]]) -> tuple[Any, ...]:
        """Claim; repeat it if the answer is lost, or the next attempt would find an unfinished call."""
        if self._is_repeatable:
            return await self._claim(before, steps)
        return await retry_unanswered(lambda: self._claim(before, steps))

    async def _claim(self, before: Sequence[Step[Any]], steps: Sequence[Step[Any]]) -> tuple[Any, ...]:
        begin = _now()
        step = self._records.claiming(self.lease, self._seconds, kept=self._kept, reply=self._reply_position)
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
        self._is_lost = not self._stopped.is_set()  # if stopped, this attempt may have ended the lease
        return False

    async def _is_anothers(self) -> bool:
        """True if another attempt holds the call that this one has lost, False if it was revoked."""
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
                self._is_needed = await self._is_anothers()
                working.cancel()
                return
            if self._is_forgotten and renewals % _LOOK == 0 and await _is_unwanted():
                _log.info("call is no longer needed; an attempt that Temporal has forgotten stops")
                self._is_needed = False
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
        """True if only a loss of the attempt by Temporal, or an operator, has cancelled it."""
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
    """Cancel work until it has ended: a single cancellation may get lost, as in a claim.

    The work's own error is dropped: the cancellation may have caused it, and the attempt's end is reported
    once.
    """
    while not working.done():
        working.cancel()
        with suppress(asyncio.CancelledError):  # the shutdown of the worker waits for the work, too
            await asyncio.wait({working}, timeout=LAST_WORDS)
    if not working.cancelled():
        working.exception()


def _raise_if_cancelled() -> None:
    """Raise a cancellation that Redis' client may have lost."""
    if activity.is_cancelled():
        raise asyncio.CancelledError


async def _is_unwanted() -> bool:
    """True if the workflow has ended in all its runs, or has cancelled this call. False without an answer.

    After an outage of Temporal the SDK alone may consider an attempt lost. It reports that once, and then no
    later cancellation by Temporal.
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
    """End a lease, within a short timeout."""
    try:
        async with asyncio.timeout(_LAST_WORD):
            await ending
    except (RedisError, OSError) as error:
        _log.warning("lease of a call not ended", error_type=type(error).__name__)


def _now() -> float:
    return asyncio.get_running_loop().time()
