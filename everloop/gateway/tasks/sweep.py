"""The sweep: finds tasks that ended, got stuck or waited without an event, also those without clients."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog
from temporalio.service import RPCError

from everloop.gateway.errors import STORE_FAILURES, GatewayError
from everloop.gateway.tasks.reconcile import Reconciler, is_untaken, lags
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.stores.lifetimes import TASK_TTL
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import OpenTask

SWEEP_PAUSE = 10.0
"""Seconds between two sweeps."""

OVERLAP = timedelta(minutes=15)
"""Time before the last sweep that is searched again: visibility lags, and clocks differ."""

AT_ONCE = 20
"""Tasks that are processed concurrently."""

LAG = timedelta(minutes=2)
"""Maximum delay of the search for new runs: there may be many, and few of them are a Reset."""

OPEN_PAGE = 200
"""Open tasks that one sweep compares with Temporal, by one query."""

_FAILURES = (GatewayError, RPCError, *STORE_FAILURES)

_log = structlog.get_logger()

Found = TypeVar("Found")


class RecurringSteps:
    """Repeated steps: a lasting failure is logged once, and ends nothing."""

    def __init__(self) -> None:
        self._failing: dict[str, type[Exception]] = {}

    async def run(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step; `what` names it in the log if it fails."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- no defect may end the repetition
            if self._failing.get(what) is not type(error):
                is_defect = not isinstance(error, _FAILURES)
                problem = "a defect" if is_defect else str(error)
                _log.warning(
                    f"cannot {what} now", error_type=type(error).__name__, problem=problem, exc_info=is_defect
                )
            self._failing[what] = type(error)
        else:
            self._failing.pop(what, None)


class Sweep:
    """Searches all tasks every `pause` seconds. Any number of processes may do so concurrently."""

    def __init__(
        self, views: TaskViews, runs: Runs, reconciler: Reconciler, *, pause: float = SWEEP_PAUSE
    ) -> None:
        self._views = views
        self._runs = runs
        self._reconciler = reconciler
        # Tasks that ended earlier have no view any more.
        self._since = self._begun_since = datetime.now(UTC) - TASK_TTL
        self._pause = pause
        self._next = 0
        self._steps = RecurringSteps()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Sweep until cancelled. A repeated failure is logged once."""
        while True:
            await self.sweep()
            await asyncio.sleep(self._pause)

    async def sweep(self) -> None:
        """Check all tasks once."""
        await self._steps.run("finalize ended tasks", self.finalize_ended)
        await self._steps.run("look at open tasks", self.reconcile_open)
        await self._steps.run("look at tasks that were read", self.reconcile_read)
        await self._steps.run("find tasks that were reset", self.find_reset)
        await self._steps.run("report stuck tasks", self.report_stuck)

    async def finalize_ended(self) -> None:
        """Finalize every task whose workflow was closed since the last sweep without publishing its end.

        Idempotent. A task that was reset or continued goes on: its newest run decides. After a failure
        the next sweep begins at the same time; tasks that are final by then cost it one cheap check.
        """
        started = datetime.now(UTC)
        await self._each(self._runs.ended_unpublished(self._since), self._reconcile)
        self._since = started - OVERLAP

    async def reconcile_open(self) -> None:
        """Compare the next batch of silent open tasks with Temporal, all of them in turn.

        Finds tasks without an end event: deleted workflows, statuses that Redis has lost. Candidates
        come from visibility, which lags behind; each is checked against its workflow.
        """
        page = await self._views.list_open(self._next, OPEN_PAGE)
        self._next = self._next + len(page) if page else 0
        silent = [task for task in page if self._reconciler.is_due(task.at)]
        task_ids = [task.task_id for task in silent]
        running = await self._runs.running(task_ids)
        suspects = [t for t in silent if lags(t.state, t.run_id, t.version, running.get(t.task_id))]
        # If Temporal has none at all, this gateway may use the wrong Temporal: do not fail them all.
        if suspects and (running or await self._runs.has_any(task_ids)):
            await self._each(_one_page(suspects), lambda task: self._reconciler.reconcile(task.task_id))

    async def reconcile_read(self) -> None:
        """Compare the silent tasks that were read since the last sweep with Temporal.

        Reads are served by Redis alone. Here all of them are checked by one query, and count as suspect even
        if Temporal has none of them: clients wait for them.
        """
        await self._each(self._readings(), self._reconciler.reconcile)

    async def find_reset(self) -> None:
        """Find tasks that continue after their end, in a run that an operator has made by Reset.

        Such a run may publish nothing, as it waits with an earlier question. It is not marked: it is a
        recent run of a task whose view shows the end of another run.
        """
        started = datetime.now(UTC)
        await self._each(self._reset(), self._reconciler.reconcile)
        self._begun_since = started - LAG

    async def report_stuck(self) -> None:
        """Report every task that the server marks as stuck."""
        await self._each(self._runs.stuck(), self._reconciler.problems.report)

    async def _readings(self) -> AsyncGenerator[list[str]]:
        task_ids = self._reconciler.take_readings()
        for first in range(0, len(task_ids), OPEN_PAGE):
            page = task_ids[first : first + OPEN_PAGE]
            running = await self._runs.running(page)
            shown = await self._views.states(page)
            yield [
                each
                for each, task in shown.items()
                if lags(task.state, task.run_id, task.version, running.get(each))
                or is_untaken(task.state, task.run_id)
            ]

    async def _reset(self) -> AsyncGenerator[list[str]]:
        async for runs in self._runs.begun(self._begun_since):
            shown = await self._views.states(list(runs))
            yield [
                each
                for each, task in shown.items()
                if task.state.is_terminal and lags(task.state, task.run_id, task.version, runs[each])
            ]

    async def _reconcile(self, task_id: str) -> None:
        state = await self._views.state(task_id)
        if state and not state.is_terminal:
            await self._reconciler.reconcile(task_id)

    async def _each(
        self, pages: AsyncIterable[Iterable[Found]], work: Callable[[Found], Awaitable[object]]
    ) -> None:
        """Process all tasks, some of them concurrently. A failure does not stop the others.

        Raises:
            Exception: the first failure, after all are done.
        """

        async def work_on(found: Found) -> None:
            async with self._slots:
                await work(found)

        failures: list[BaseException] = []
        async for page in pages:
            outcomes = await asyncio.gather(*map(work_on, page), return_exceptions=True)
            failures += [outcome for outcome in outcomes if outcome]
        if failures:
            raise failures[0]


async def _one_page(tasks: Sequence[OpenTask]) -> AsyncGenerator[Sequence[OpenTask]]:
    yield tasks
