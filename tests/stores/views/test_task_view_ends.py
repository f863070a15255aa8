"""Tasks of several runs that gateways tell of, late and in any order: the newest run has the last word."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import StatusChanged, Warned
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.stores.examples import (
    answered,
    artifact,
    at,
    chunk,
    new_id,
    status,
    stream_of,
    submitted,
    view_of,
)
from tests.support.memory.task_views import MemoryTaskViews

LAST_STEP = 1_000


def ended(version: int, seconds: float, state: TaskState = TaskState.FAILED) -> StatusChanged:
    return status(version, state, step=LAST_STEP, seconds=seconds)


@pytest.mark.parametrize(
    ("run_id", "seconds", "applies"),
    [("run", 0, True), ("", 0, True), ("newer", 6, True), ("older", 4, False), ("overtaken", 9, False)],
)
async def test_a_last_status_does_not_shut_a_newer_run_out(
    task_views: TaskViews, run_id: str, seconds: float, *, applies: bool
) -> None:
    """It counts for the run that the view follows, and for an unseen one if it is later; once."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "overtaken", [status(1)])
    await task_views.publish(view.task_id, "run", [status(5), chunk("half")])

    told = [await task_views.end(view.task_id, run_id, ended(5, seconds)) for _ in range(2)]

    await task_views.publish(view.task_id, "run", [status(6)])
    now = await view_of(task_views, view.task_id)
    assert told == [applies, False]
    assert now.run_id == ("newer" if run_id == "newer" else "run")
    assert await task_views.state(view.task_id) == now.status.state
    failed = [e for e in await stream_of(task_views, view.task_id) if e == ended(5, seconds)]
    assert len(failed) == applies
    assert now.artifacts == (artifact("half", complete=False, failed=applies),)


@pytest.mark.parametrize("is_known", [True, False])
async def test_only_an_open_task_is_given_an_end(task_views: TaskViews, *, is_known: bool) -> None:
    """What a task said of its own end stays, and a task that nobody knows is not made up."""
    view = submitted(task_id=new_id())
    if is_known:
        await task_views.create(view)
        await task_views.publish(view.task_id, "run", [status(2, TaskState.COMPLETED)])

    assert not await task_views.end(view.task_id, "newer", ended(2, 9))
    assert await task_views.state(view.task_id) == (TaskState.COMPLETED if is_known else None)


async def test_an_end_of_no_run_gives_way_to_any_run(task_views: TaskViews) -> None:
    """The workflow was called gone before it had said anything, and was not."""
    view = submitted()
    await task_views.create(view)

    assert await task_views.end(view.task_id, "", ended(0, 3))
    await task_views.publish(view.task_id, "run", [status(1)])

    assert await task_views.state(view.task_id) is TaskState.WORKING


async def test_a_warning_about_a_run_does_not_make_it_the_newest(task_views: TaskViews) -> None:
    """A gateway may warn of a run that never published and was replaced meanwhile; subscribers hear it."""
    view = submitted()
    await task_views.create(view)
    await task_views.publish(view.task_id, "newest", [status(1)])

    await task_views.publish(view.task_id, "never heard of", [Warned(text="stuck")])
    await task_views.publish(view.task_id, "newest", [status(2, TaskState.COMPLETED)])

    assert (await stream_of(task_views, view.task_id))[2:] == [
        Warned(text="stuck"),
        status(2, TaskState.COMPLETED),
    ]


Kind = Literal["warn", "end", "restore", "follow"]


@dataclass(frozen=True)
class Report:
    """What a gateway found out of a run at a time, and tells `delay` later. `follow`: somebody looked."""

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
                await views.restore(answered(view, self.run_id, self.version, status=working(self.at - 1)))
            case "follow":
                await views.restore(answered(view, self.run_id, self.version, status=working(self.at)))


def working(seconds: float) -> TaskStatus:
    return TaskStatus(state=TaskState.WORKING, at=at(seconds))


REPORTS = st.builds(
    Report, st.sampled_from(["warn", "end", "restore", "follow"]), st.integers(0, 6).map(lambda n: 2 * n)
)
RUNS = st.lists(st.tuples(st.integers(0, 2), st.lists(REPORTS, max_size=2)), min_size=1, max_size=4)
"""Each run: how many statuses it publishes, and what gateways find out before it is replaced."""


@settings(max_examples=400, deadline=None)
@given(runs=RUNS, speaks=st.booleans())
async def test_the_newest_run_has_the_last_word(
    runs: Sequence[tuple[int, Sequence[Report]]], *, speaks: bool
) -> None:
    """However late gateways tell of what they found out, the end of the newest run is shown."""
    views, view = MemoryTaskViews(), submitted()
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
        await views.publish(view.task_id, run_id, [status(version + 1, TaskState.COMPLETED, seconds=now + 1)])
    else:
        await views.end(view.task_id, run_id, ended(version, now + 1))
    for report in late:
        await report.tell(views, view)

    final = await view_of(views, view.task_id)
    assert final.status.state.is_terminal
    assert (final.run_id, final.status.state) == (run_id, TaskState.COMPLETED) or not speaks
