"""Late reports of gateways about runs: the end of the newest run is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import Warned
from everloop.workflows.contract.tasks import TaskView
from tests.stores.examples import answered, status, submitted, view_of
from tests.stores.log.test_fold import DONE, WORKING, ended, state

Kind = Literal["warn", "end", "restore", "follow"]


@dataclass(frozen=True)
class Report:
    """A gateway's finding about a run, reported `delay` later. With `follow`, a client reads the view."""

    kind: Kind
    delay: int
    run_id: str = ""
    version: int = 0
    at: int = 0

    async def tell(self, views: TaskViews, view: TaskView) -> None:
        match self.kind:
            case "warn":
                await views.publish(view.task_id, self.run_id, [Warned(text="stuck")])
            case "end":
                await views.end(view.task_id, self.run_id, ended(self.version, self.at))
            case "restore":
                status = state(WORKING, self.at - 1)
                await views.restore(answered(view, self.run_id, self.version, status=status))
            case "follow":
                status = state(WORKING, self.at)
                await views.restore(answered(view, self.run_id, self.version, status=status))


REPORTS = st.builds(
    Report, st.sampled_from(["warn", "end", "restore", "follow"]), st.integers(0, 6).map(lambda n: 2 * n)
)
RUNS = st.lists(st.tuples(st.integers(0, 2), st.lists(REPORTS, max_size=2)), min_size=1, max_size=4)
"""Each run: the number of its statuses, and the reports before it is replaced."""


@settings(max_examples=150, deadline=None)
@given(runs=RUNS, speaks=st.booleans())
async def test_the_newest_run_has_the_last_word(
    redis_url: str, runs: Sequence[tuple[int, Sequence[Report]]], *, speaks: bool
) -> None:
    """The end of the newest run is shown, however late gateways report older ones."""
    async with connect_redis(redis_url) as redis:
        views, view = TaskViews(redis), submitted()
        await views.create(view)
        now, run_id, version, late = 0, "", 0, list[Report]()
        for number, (statuses, reports) in enumerate(runs):
            run_id, version = f"run-{number}", 0
            for _ in range(statuses):
                now, version = now + 1, version + 1
                await views.publish(view.task_id, run_id, [status(version, seconds=now)])
                for report in [report for report in late if report.at + report.delay <= now]:
                    late.remove(report)
                    await report.tell(views, view)
            now += 1
            is_newest = number == len(runs) - 1
            late += [
                replace(report, run_id=run_id, version=version, at=now)
                for report in reports
                if not (is_newest and report.kind == "end")
            ]
        if speaks:
            await views.publish(view.task_id, run_id, [status(version + 1, DONE, seconds=now + 1)])
        else:
            await views.end(view.task_id, run_id, ended(version, now + 1))
        for report in late:
            await report.tell(views, view)

        final = await view_of(views, view.task_id)
        assert final.status.state.is_terminal
        assert (final.run_id, final.status.state) == (run_id, DONE) or not speaks
