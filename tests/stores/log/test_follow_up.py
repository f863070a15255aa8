"""Lists follow views in a second step: errors of a death in between, or of a late writer, are corrected."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from redis.asyncio import Redis

from everloop.stores.keys import context_info_key, owner_tasks_key
from everloop.stores.log import lists
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import Published, TaskQuery, WaitingQuery
from everloop.stores.quotas import Quotas
from everloop.stores.scripts import run_scripts
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import AGENT_ID, new_id, open_entries, status, submitted, view_of
from tests.stores.log.test_waiting_tasks import asking

SCOPE = "follow-up:approve"


@dataclass(frozen=True)
class Store:
    """A store, and the steps that change its views."""

    redis: Redis
    views: TaskViews

    async def step(self, view: TaskView, change: StatusChanged | None, run_id: str = "run") -> Published:
        """Change a view (None: create it), and die before the lists change."""
        views = self.views
        step = views.publishing(view.task_id, run_id, [change]) if change else views.creating(view)
        (published,) = await run_scripts(self.redis, step)
        assert published
        return published

    async def told(self, view: TaskView) -> dict[str, object]:
        """Return a task's state in lists: its state, whether it is open, counts and waits."""
        lists: dict[str, object] = {}
        for state in (None, *TaskState):
            query = TaskQuery(
                view.owner, AGENT_ID, view.context_id, state, with_history=0, with_artifacts=False
            )
            lists[state or "any"] = (await self.views.list_tasks(query)).total
        waiting = await self.views.list_waiting(WaitingQuery((SCOPE,), page_size=100))
        quotas, other = Quotas(self.redis), new_id()
        may_start = await quotas.reserve_task(view.owner, other, 1)
        await quotas.release_task(view.owner, other)
        return {
            "states": [state for state, total in lists.items() if total],
            "counts": not may_start,
            "waits": view.task_id in {task.view.task_id for task in waiting.tasks},
        }


@pytest.fixture
def store(redis: Redis) -> Store:
    return Store(redis, TaskViews(redis))


ASKING = status(2, TaskState.INPUT_REQUIRED, questions=(asking(SCOPE),))
CHANGES: dict[str, tuple[Sequence[StatusChanged], StatusChanged | None]] = {
    "created": ((), None),
    "working": ((), status(1)),
    "asking": ((status(1),), ASKING),
    "answered": ((status(1), ASKING), status(3)),
    "ended": ((status(1), ASKING), status(3, TaskState.FAILED)),
    "open again": ((status(1, TaskState.FAILED),), status(2, TaskState.WORKING)),
}
Repair = Callable[[Store, TaskView, StatusChanged | None], Awaitable[object]]


async def repeat(store: Store, view: TaskView, change: StatusChanged | None) -> None:
    """Repeat the change, as an activity or a client without an answer does."""
    if change:
        await store.views.publish(view.task_id, "run", [change])
    else:
        await store.views.create(view)


async def sweep(store: Store, _: TaskView, __: StatusChanged | None) -> None:
    """Check all open tasks, as gateways do periodically."""
    first = 0
    while page := await store.views.list_open(first, 200):
        first += len(page)


async def reindex(store: Store, view: TaskView, _: StatusChanged | None) -> None:
    await store.views.restore(await view_of(store.views, view.task_id))


REPAIRS: dict[str, tuple[Repair, set[str]]] = {
    "whoever got no answer asks again": (repeat, {*CHANGES}),
    "the sweep": (
        sweep,
        {"working", "asking", "answered", "ended"},
    ),  # tasks that are not listed as open are not checked
    "reindex": (reindex, {*CHANGES}),
}


@pytest.mark.parametrize(
    ("repair", "name"), [(repair, name) for repair, (_, names) in REPAIRS.items() for name in sorted(names)]
)
async def test_what_died_between_the_steps_is_made_good(store: Store, repair: str, name: str) -> None:
    """After a death between the steps, each repair makes the lists as if it had not happened."""
    told: list[dict[str, object]] = []
    before, change = CHANGES[name]
    for dies in (False, True):
        view = submitted()
        if change:
            await store.views.create(view)
        for each in before:
            await store.views.publish(view.task_id, "run", [each])
        if dies:
            await store.step(view, change)
            await REPAIRS[repair][0](store, view, change)
        else:
            await repeat(store, view, change)
        told.append(await store.told(view))

    assert told[0] == told[1]


async def test_nobody_is_shown_what_a_view_does_not_say(store: Store) -> None:
    """An answered task is not shown as waiting, even if its list is not updated yet."""
    view = submitted()
    await store.views.create(view)
    await store.views.publish(view.task_id, "run", [ASKING])

    await store.step(view, status(3))

    assert (await store.told(view))["waits"] is False


async def test_statuses_that_are_listed_at_the_same_time_leave_the_last_one(store: Store) -> None:
    """Whichever process is the first: each compares what it replaces, in the lists and in the context."""
    for _ in range(5):
        view = submitted()
        changes = (None, ASKING, status(3), status(4, TaskState.COMPLETED))
        frozen = [await store.step(view, change) for change in changes]

        await asyncio.gather(*(store.views.follow_up(view.task_id, each) for each in reversed(3 * frozen)))

        context = await store.views.contexts.get(view.owner, view.context_id)
        assert context
        assert (context.count, context.open_tasks) == (1, 0)
        assert await store.redis.ttl(context_info_key(view.owner, view.context_id)) > 0
        assert await store.redis.zcard(owner_tasks_key(view.owner)) == 6
        assert (await store.told(view))["states"] == ["any", TaskState.COMPLETED]


@pytest.mark.parametrize("late", [status(1), ASKING, status(2, TaskState.FAILED)])
@pytest.mark.parametrize("newer", [status(3), status(3, TaskState.COMPLETED)])
async def test_who_comes_late_changes_no_list(
    store: Store, late: StatusChanged, newer: StatusChanged
) -> None:
    """A late writer, suspended between the steps with an open status or an end, changes no list."""
    view = submitted()
    await store.views.create(view)
    frozen = await store.step(view, late, run_id="older" if late.state.is_terminal else "run")
    await store.views.publish(
        view.task_id, "run", [newer.model_copy(update={"at": late.at.replace(hour=20)})]
    )
    before = await store.told(view)

    await store.views.follow_up(view.task_id, frozen)

    assert await store.told(view) == before
    assert len(await open_entries(store.redis, view.task_id)) == (not newer.state.is_terminal)


@pytest.mark.parametrize("wanted", [None, TaskState.SUBMITTED, TaskState.WORKING])
async def test_who_reads_a_page_finds_what_has_begun_to_work(store: Store, wanted: TaskState | None) -> None:
    """The reader of a page finds a task that started to work without a list's change.

    It has the place of that status's time, and is no longer among waiting ones.
    """
    older, newer = (submitted(owner="o" + new_id(), seconds=n) for n in range(2))
    newer = newer.model_copy(update={"owner": older.owner})
    for view in (older, newer):
        await store.views.create(view)
    await store.views.publish(older.task_id, "run", [status(1, seconds=60)])

    query = TaskQuery(older.owner, AGENT_ID, state=wanted, with_history=0, with_artifacts=False)
    page = await store.views.list_tasks(query)

    expected = {None: [older, newer], TaskState.SUBMITTED: [newer], TaskState.WORKING: [older]}[wanted]
    assert [view.task_id for view in page.views] == [view.task_id for view in expected]
    assert page.total == len(expected)


@pytest.mark.parametrize("waiting", [set[int](), {0}, {3, 4}], ids=["all work", "one waits", "some wait"])
async def test_who_reads_a_page_finds_all_that_have_begun_to_work(
    store: Store, waiting: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of a page finds any number of tasks that started to work.

    A few are checked at a time, the oldest first, while one of them has started.
    """
    monkeypatch.setattr(lists, "_MOST_BEGUN", 2)
    owner = "o" + new_id()
    views = [submitted(owner=owner, seconds=n) for n in range(9)]
    for number, view in enumerate(views):
        await store.views.create(view)
        if number not in waiting:
            await store.views.publish(view.task_id, "run", [status(1, seconds=60 + number)])

    query = TaskQuery(owner, AGENT_ID, state=TaskState.WORKING, with_history=0, with_artifacts=False)
    page = await store.views.list_tasks(query)

    # The two that have waited longest have not started: the sweep finds the later ones.
    expected = {*range(9)} - waiting - ({5} if len(waiting) > 1 else set())
    assert {view.task_id for view in page.views} == {views[number].task_id for number in expected}


async def test_the_tenth_status_of_a_millisecond_is_later_than_the_ninth(store: Store) -> None:
    """The tenth status of a millisecond is later than the ninth: positions are numbers in lists."""
    view = submitted()
    listing = (await store.step(view, None)).listing
    assert listing
    for revision, state in (("5-10", TaskState.WORKING), ("5-9", TaskState.SUBMITTED)):
        await store.views.lists.enter(replace(listing, revision=revision, state=state))

    assert (await store.told(view))["states"] == ["any", TaskState.WORKING]


async def test_an_end_that_comes_late_leaves_a_task_open_that_has_opened_again(store: Store) -> None:
    """A late end leaves a reopened task open, and removes only its own run.

    So does the end of the reopened one.
    """
    view = submitted()
    await store.views.create(view)
    frozen = await store.step(view, status(1, TaskState.FAILED))
    await store.views.publish(view.task_id, "newer", [status(1, seconds=60)])
    open_again = await open_entries(store.redis, view.task_id)
    await store.views.follow_up(view.task_id, frozen)
    still_open = await open_entries(store.redis, view.task_id)
    await sweep(store, view, None)
    swept = await open_entries(store.redis, view.task_id)
    await store.views.publish(view.task_id, "newer", [status(2, TaskState.COMPLETED, seconds=90)])

    assert len(open_again) == 2  # the first end has reached no list
    assert still_open == swept == open_again[1:]
    assert await open_entries(store.redis, view.task_id) == []


async def test_a_task_that_has_opened_again_is_an_open_one(store: Store) -> None:
    """A reopened task is swept once, even if its first end reached no list, and can leave all lists."""
    view = submitted()
    await store.views.create(view)
    await store.step(view, status(1, TaskState.FAILED))
    await store.views.publish(view.task_id, "newer", [status(1, seconds=60)])
    seen = [[task.task_id for task in await store.views.list_open(0, 10_000)] for _ in range(2)]
    await store.views.lists.forget(view.owner, view.task_id)

    assert [each.count(view.task_id) for each in seen] == [1, 1]
    assert await open_entries(store.redis, view.task_id) == []
