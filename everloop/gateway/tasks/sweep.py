"""The sweep: finds tasks that ended, got stuck or waited without a word, also where nobody looks at them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog
from temporalio.service import RPCError

from everloop.gateway.errors import STORE_FAILURES, GatewayError
from everloop.gateway.tasks.reconcile import Reconciler, is_untaken, lags
from everloop.gateway.tasks.runs import Runs
from everloop.stores.log.interface import OpenTask
from everloop.stores.log.store import TaskViews
from everloop.stores.retention import TASK_TTL

SWEEP_PAUSE = 10.0
"""Seconds between two sweeps."""

OVERLAP = timedelta(minutes=15)
"""How much of the time before the last sweep is looked at again: visibility lags, and clocks differ."""

AT_ONCE = 20
"""Tasks that are looked at together."""

LAG = timedelta(minutes=2)
"""How late a run that has begun is looked for at most: there may be many, and few of them are a Reset."""

OPEN_PAGE = 200
"""How many open tasks one sweep compares with Temporal, by one query."""

_FAILURES = (GatewayError, RPCError, *STORE_FAILURES)

_log = structlog.get_logger()

Found = TypeVar("Found")


class RecurringSteps:
    """Steps that are done again and again: a failure is logged once as long as it lasts, and ends nothing."""

    def __init__(self) -> None:
        self._failing: dict[str, type[Exception]] = {}

    async def run(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step; `what` names it in the log if it fails."""
        try:
            await step()
        except Exception as error:  # noqa: BLE001 -- no defect may end what is done again and again
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
    """Looks through all tasks every `pause` seconds. Any number of processes may do so at once."""

    def __init__(
        self, views: TaskViews, runs: Runs, reconciler: Reconciler, *, pause: float = SWEEP_PAUSE
    ) -> None:
        self._views = views
        self._runs = runs
        self._reconciler = reconciler
        # What ended longer ago has no view any more.
        self._since = self._begun_since = datetime.now(UTC) - TASK_TTL
        self._pause = pause
        self._next = 0
        self._steps = RecurringSteps()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Sweep until cancelled; what fails is logged once and tried again."""
        while True:
            await self.sweep()
            await asyncio.sleep(self._pause)

    async def sweep(self) -> None:
        """Look through all tasks once."""
        await self._steps.run("finalize ended tasks", self.finalize_ended)
        await self._steps.run("look at open tasks", self.reconcile_open)
        await self._steps.run("look at tasks that were read", self.reconcile_read)
        await self._steps.run("find tasks that were reset", self.find_reset)
        await self._steps.run("report stuck tasks", self.report_stuck)

    async def finalize_ended(self) -> None:
        """Finalize every task whose workflow was closed since the last sweep and did not say so.

        It is idempotent, and a task that was reset or continued goes on: its newest run tells. After a
        failure the next sweep begins where this one did; what is final by then costs it one cheap look.
        """
        started = datetime.now(UTC)
        await self._each(self._runs.ended_unpublished(self._since), self._reconcile)
        self._since = started - OVERLAP

    async def reconcile_open(self) -> None:
        """Compare the next open tasks that have been silent for a while with Temporal, all of them in turn.

        Finds what no end tells of: workflows that are gone, statuses that Redis has lost. Visibility, which
        lags behind, says where to look; what it suspects is asked for one by one.
        """
        page = await self._views.list_open(self._next, OPEN_PAGE)
        self._next = self._next + len(page) if page else 0
        silent = [task for task in page if self._reconciler.is_due(task.at)]
        running = await self._runs.running([task.task_id for task in silent])
        # Of none at all rather this gateway asks the wrong Temporal: no reason to call everything failed.
        known = [task for task in silent if running]
        suspects = [t for t in known if lags(t.state, t.run_id, t.version, running.get(t.task_id))]
        await self._each(_one_page(suspects), lambda task: self._reconciler.reconcile(task.task_id))

    async def reconcile_read(self) -> None:
        """Compare the silent tasks that somebody has read since the last sweep with Temporal.

        Who reads is answered by Redis alone. Here all of them are asked about by one query, and believed to
        be gone if Temporal knows none: somebody waits for them.
        """
        await self._each(self._readings(), self._reconciler.reconcile)

    async def find_reset(self) -> None:
        """Find tasks that go on after their end, in a run that an operator has made by Reset.

        Such a run may have nothing new to say, as it waits with a question of before. Nothing marks it: it is
        one that began of late, of a task whose view says that another run has ended it.
        """
        started = datetime.now(UTC)
        await self._each(self._reset(), self._reconciler.reconcile)
        self._begun_since = started - LAG

    async def report_stuck(self) -> None:
        """Report every task that the server calls stuck."""
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
        """Work on all that was found, some of it at once; what fails keeps nothing else from it.

        Raises:
            Exception: the first failure, when all is done.
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
