"""Tasks that ended, or got stuck, without a word: terminated by an operator, timed out, broken, or gone."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import structlog
from opentelemetry import metrics

from gateway.cancellation import cancel
from gateway.errors import STORE_FAILURES, GatewayError, NoWorkerError, UnavailableError
from gateway.problems import Problems
from gateway.runs import Ending, Runs
from gateway.stores import Stores
from gateway.tasks import Tasks, canceled_status
from stores.task_views import Snapshot, position_order
from workflows.contract.events import REASON, StatusChanged
from workflows.contract.messages import AgentMessage, TextPart
from workflows.contract.tasks import TaskView

LAST_STEP = 1_000_000_000
"""Behind every passing status that an activity may have published under the same version."""

CHECK_PAUSE = 15.0
"""Seconds of silence after which we ask what became of a task, and until we ask again."""

MAX_CHECKS = 10_000
"""How many tasks a process remembers to have asked about."""

CHECKS_AT_ONCE = 20

_log = structlog.get_logger()
_settled = metrics.get_meter("everloop").create_counter(
    "everloop.tasks.settled",
    unit="{task}",
    description="Tasks whose last status the gateway published, because their workflow could not.",
)


@dataclass(frozen=True)
class _Check:
    started: float
    task: "asyncio.Task[None]"


class Endings:
    """Gives such a task the last status that it could not publish itself, so that nobody waits for it.

    `pause` is in seconds: what is silent for so long is checked, at most once in that time.
    """

    def __init__(
        self, stores: Stores, tasks: Tasks, runs: Runs, problems: Problems, *, pause: float = CHECK_PAUSE
    ) -> None:
        self._views = stores.views
        self._secrets = stores.secrets
        self._tasks = tasks
        self._runs = runs
        self._problems = problems
        self._pause = pause
        self._checks: dict[str, _Check] = {}
        self._slots = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def settle(self, task_id: str) -> bool:
        """Make the view of a task say that it has ended, if its workflow has, and return whether it has.

        Repeating it changes nothing.

        Raises:
            TemporalUnavailableError: nobody can tell.
        """
        if ending := await self._runs.ending(task_id):
            await self._settle(task_id, ending)
        return ending is not None

    async def settle_untaken(self, task_id: str) -> bool:
        """Make the view of a task say that it was canceled before any worker took it; return whether it was.

        The cancellation stands in the history before the first step of the workflow, which is therefore its
        last: it can end in no other way. What it publishes when a worker comes is newer than this.

        Raises:
            TemporalUnavailableError: nobody can tell.
        """
        try:
            beginning = await self._tasks.beginning(task_id)
        except NoWorkerError:  # it has ended meanwhile, and has said so itself
            return False
        if beginning.canceled_at is None:
            return False
        await self._views.create(beginning.submitted)
        status = canceled_status(task_id, beginning.canceled_at)
        event = StatusChanged(
            version=0, step=LAST_STEP, state=status.state, at=status.at, message=status.message
        )
        await self._views.publish(task_id, beginning.run_id, [event])
        _settled.add(1, {"state": event.state})
        return True

    def is_due(self, view: TaskView, silent_since: float) -> bool:
        """Whether a task that was last heard of at that time, in seconds since the epoch, may have ended."""
        return not view.status.state.is_terminal and time.time() - silent_since >= self._pause

    async def check(self, task_id: str, *, wait: float | None = None) -> bool:
        """Ask what became of a task, together with all who want to know it now.

        Waits for `wait` seconds at most (None: as long as it takes); then it goes on without us. Returns
        whether the view now tells: not if somebody asked a short time ago, so that there is nothing new.
        What goes wrong is left to the next check.
        """
        check = self._running_check(task_id)
        if check is None:
            return False
        done, _ = await asyncio.wait({check}, timeout=wait)
        return bool(done)

    def check_soon(self, task_id: str) -> None:
        """Ask what became of a task, unless somebody did a short time ago; do not wait for the answer."""
        self._running_check(task_id)

    async def close(self) -> None:
        """Stop asking."""
        for check in list(self._checks.values()):
            await cancel(check.task)

    def _running_check(self, task_id: str) -> "asyncio.Task[None] | None":
        now = asyncio.get_running_loop().time()
        self._forget_old_checks(now)
        check = self._checks.get(task_id)
        if check is None:
            check = self._checks[task_id] = _Check(now, asyncio.create_task(self._check(task_id)))
        return None if check.task.done() else check.task

    def _forget_old_checks(self, now: float) -> None:
        """Drop checks from the oldest on; one that runs is kept, with all after it."""
        while self._checks:
            task_id, oldest = next(iter(self._checks.items()))
            is_recent = now - oldest.started < self._pause and len(self._checks) < MAX_CHECKS
            if is_recent or not oldest.task.done():
                return
            del self._checks[task_id]

    async def _check(self, task_id: str) -> None:
        try:
            async with self._slots:
                state = await self._runs.state(task_id)
                if isinstance(state, Ending):
                    await self._settle(task_id, state)
                elif state:
                    await self._problems.report(state)
        except (UnavailableError, *STORE_FAILURES) as error:
            _log.debug("task not checked", task_id=task_id, error=str(error))
        except Exception:  # noqa: BLE001 -- nobody waits for this task's outcome: no defect may end it silently
            _log.exception("task check failed", task_id=task_id)

    async def _settle(self, task_id: str, ending: Ending) -> None:
        with suppress(GatewayError):
            # What the workflow itself says is better than what we can tell: it may know its answer.
            await self._views.restore(await self._tasks.view(task_id))
        await self._secrets.forget(task_id)
        snapshot = await self._views.load(task_id)
        if snapshot and not snapshot.view.status.state.is_terminal:
            status = _last_status(snapshot.view, ending)
            await self._views.publish(task_id, ending.run_id or snapshot.view.run_id, [status])
            _log.warning("task ended without a word", task_id=task_id, state=ending.state)
            _settled.add(1, {"state": ending.state})


def last_heard(snapshot: Snapshot) -> float:
    """Return when a task last published something, in seconds since the epoch by the store's clock."""
    return position_order(snapshot.position)[0] / 1000


def _last_status(view: TaskView, ending: Ending) -> StatusChanged:
    message = AgentMessage(
        message_id=f"{view.task_id}-ended",
        parts=(TextPart(text=ending.reason),),
        metadata={REASON: ending.failure} if ending.failure else {},
    )
    return StatusChanged(
        version=view.version,
        step=LAST_STEP,
        state=ending.state,
        at=ending.at,
        message=message,
        metadata=view.status.metadata,
    )
