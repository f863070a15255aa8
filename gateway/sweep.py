"""The sweep: finds tasks that ended or got stuck without a word, also where nobody looks at them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.service import RPCError

from gateway.endings import Endings
from gateway.errors import STORE_FAILURES, UnavailableError
from gateway.problems import Problems
from gateway.runs import Runs
from stores.task_views import TaskViews
from stores.view_parts import TASK_TTL

SWEEP_PAUSE = 10.0
"""Seconds between two sweeps."""

OVERLAP = timedelta(minutes=1)
"""How much of the time before the last sweep is looked at again: visibility lags behind."""

MAX_SETTLED = 200
"""Tasks that one sweep settles at most; the next one goes on."""

SETTLED_AT_ONCE = 20

MAX_STUCK = 100
"""Stuck tasks that one sweep tells of at most."""

_FAILURES = (UnavailableError, RPCError, *STORE_FAILURES)

_log = structlog.get_logger()


class Sweep:
    """Looks through all tasks every few seconds. Any number of processes may do so at once."""

    def __init__(self, views: TaskViews, runs: Runs, endings: Endings, problems: Problems) -> None:
        self._views = views
        self._runs = runs
        self._endings = endings
        self._problems = problems
        # What ended longer ago has no view any more.
        self._since = datetime.now(UTC) - TASK_TTL
        self._failing: set[str] = set()
        self._slots = asyncio.Semaphore(SETTLED_AT_ONCE)

    async def run(self) -> None:
        """Sweep until cancelled; what fails is logged once and tried again."""
        while True:
            await self._try("settle ended tasks", self.settle_ended)
            await self._try("report stuck tasks", self.report_stuck)
            await asyncio.sleep(SWEEP_PAUSE)

    async def settle_ended(self) -> None:
        """Settle every task whose workflow was closed since the last sweep and did not say so.

        Settling is idempotent, and a task that was reset or continued goes on: its newest run tells.
        """
        started, found = datetime.now(UTC), 0
        async with asyncio.TaskGroup() as group:
            async for task_id in self._runs.ended_unsaid(self._since):
                snapshot = await self._views.load(task_id)
                if snapshot is None or snapshot.view.status.state.is_terminal:
                    continue
                if found == MAX_SETTLED:
                    return
                group.create_task(self._settle(task_id))
                found += 1
        self._since = started - OVERLAP

    async def report_stuck(self) -> None:
        """Report every task that the server calls stuck."""
        for stuck in await self._runs.stuck(MAX_STUCK):
            await self._problems.report(stuck)

    async def _settle(self, task_id: str) -> None:
        try:
            async with self._slots:
                await self._endings.settle(task_id)
        except _FAILURES as error:
            # Its time of close is in the overlap for a while yet.
            _log.warning("task not settled", task_id=task_id, error=f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 -- one bad task must not keep all others from being settled
            _log.exception("task not settled", task_id=task_id)

    async def _try(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except _FAILURES as error:
            if what not in self._failing:
                _log.warning(f"cannot {what} now", error=f"{type(error).__name__}: {error}")
            self._failing.add(what)
        except Exception:  # noqa: BLE001 -- no defect may end the sweep silently
            _log.exception(f"cannot {what}")
        else:
            self._failing.discard(what)
