"""Lists of tasks: order, filters and pages."""

import base64
from dataclasses import replace

import pytest

from stores.task_views import InvalidPageTokenError, TaskPage, TaskQuery, TaskViews
from tests.stores.examples import answered, at, new_id, status, submitted
from workflows.contract.tasks import TaskState


async def create_many(views: TaskViews, owner: str, seconds: list[float], context_id: str = "") -> list[str]:
    """Create one task for each time and return the ids, newest first, as a list would."""
    tasks = [submitted(owner=owner, seconds=second, context_id=context_id) for second in seconds]
    for task in tasks:
        await views.create(task)
    return [t.task_id for t in sorted(tasks, key=lambda t: (t.status.at, t.task_id), reverse=True)]


def ids_of(page: TaskPage) -> list[str]:
    return [view.task_id for view in page.views]


async def page_through(views: TaskViews, query: TaskQuery) -> list[str]:
    """Return the ids of all pages; each page but the last is full."""
    page = await views.list_tasks(query)
    found = ids_of(page)
    while page.next_page_token:
        assert len(page.views) == query.page_size
        again = replace(query, page_token=page.next_page_token)
        page = await views.list_tasks(again)
        found += ids_of(page)
    return found


async def test_an_owner_sees_own_tasks_newest_status_first(task_views: TaskViews) -> None:
    """The list holds whole views of the owner's tasks, ordered by their last status, and nobody else's."""
    owner = new_id()
    ids = await create_many(task_views, owner, [1, 2, 3])
    await create_many(task_views, new_id(), [4])
    await task_views.publish(ids[-1], "run", [status(9)])

    page = await task_views.list_tasks(TaskQuery(owner=owner))

    assert ids_of(page) == [ids[2], ids[0], ids[1]]
    snapshot = await task_views.load(ids[2])
    assert snapshot
    assert page.views[0] == snapshot.view
    assert (page.total, page.next_page_token) == (3, "")


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
async def test_pages_join_to_the_whole_list(task_views: TaskViews, page_size: int) -> None:
    """Paging lists every task once, also those whose statuses are of the same millisecond."""
    owner = new_id()
    ids = await create_many(task_views, owner, [1, 2, 2, 2, 2, 2, 3])

    assert await page_through(task_views, TaskQuery(owner=owner, page_size=page_size)) == ids


async def test_a_task_that_moves_while_paging_neither_repeats_nor_pushes_another_out(
    task_views: TaskViews,
) -> None:
    """The next page begins after the last listed task, wherever that and others are by now."""
    owner = new_id()
    ids = await create_many(task_views, owner, [1, 2, 3, 4, 5])
    first = await task_views.list_tasks(TaskQuery(owner=owner, page_size=2))

    await task_views.publish(ids[1], "run", [status(8)])
    await task_views.publish(ids[3], "run", [status(9)])
    second = await task_views.list_tasks(
        TaskQuery(owner=owner, page_size=2, page_token=first.next_page_token)
    )

    assert ids_of(first) == ids[:2]
    assert ids_of(second) == [ids[2], ids[4]]
    assert second.total == 5


async def test_a_context_a_state_and_a_time_narrow_the_list(task_views: TaskViews) -> None:
    """Each filter, and all of them together, narrow both the list and its total."""
    owner, context_id = new_id(), new_id()
    elsewhere = await create_many(task_views, owner, [1])
    inside = await create_many(task_views, owner, [2, 3, 4], context_id)
    await task_views.publish(inside[0], "run", [status(1, TaskState.COMPLETED, seconds=4)])
    await task_views.publish(elsewhere[0], "run", [status(1, TaskState.COMPLETED, seconds=5)])

    async def find(**filters: object) -> tuple[list[str], int]:
        query = TaskQuery(owner=owner, **filters)  # pyright: ignore[reportArgumentType] -- a table of filters
        page = await task_views.list_tasks(query)
        return ids_of(page), page.total

    assert await find(context_id=context_id) == (inside, 3)
    assert await find(state=TaskState.COMPLETED) == ([*elsewhere, inside[0]], 2)
    assert await find(state=TaskState.COMPLETED, context_id=context_id) == (inside[:1], 1)
    assert await find(state=TaskState.FAILED) == ([], 0)
    after = at(3).timestamp()
    assert await find(updated_after=after) == ([*elsewhere, inside[0]], 2)
    assert await find(updated_after=after, context_id=context_id) == (inside[:1], 1)
    assert await find(context_id=new_id()) == ([], 0)


async def test_tasks_of_one_state_are_paged_too(task_views: TaskViews) -> None:
    """A filter by state pages through the matches only, and counts them all on every page."""
    owner = new_id()
    ids = await create_many(task_views, owner, list(range(450)))
    for task_id in ids[::50]:
        await task_views.publish(task_id, "run", [status(1, TaskState.FAILED, seconds=1_000)])
    query = TaskQuery(owner=owner, state=TaskState.FAILED, page_size=4)

    assert sorted(await page_through(task_views, query)) == sorted(ids[::50])
    assert (await task_views.list_tasks(query)).total == 9


async def test_restored_tasks_are_listed(task_views: TaskViews) -> None:
    """A task that only a restore knows of is in its owner's list."""
    view = answered(submitted(), "run", 3)
    await task_views.restore(view)

    page = await task_views.list_tasks(TaskQuery(owner=view.owner, context_id=view.context_id))

    assert ids_of(page) == [view.task_id]


async def test_a_task_without_its_static_part_is_not_listed(task_views: TaskViews) -> None:
    """A task that nobody created yet has no owner, so it is in no list until it is created."""
    view = submitted()
    await task_views.publish(view.task_id, "run", [status(3)])
    assert ids_of(await task_views.list_tasks(TaskQuery(owner=view.owner))) == []

    await task_views.create(view)

    assert ids_of(await task_views.list_tasks(TaskQuery(owner=view.owner))) == [view.task_id]


FOREIGN_TOKENS = ["x", "%%%", "5", base64.urlsafe_b64encode(b"abc").decode(), "MTI6YQ", "MTI6YQ==\n", "é"]


@pytest.mark.parametrize("token", FOREIGN_TOKENS)
async def test_a_foreign_page_token_is_refused(task_views: TaskViews, token: str) -> None:
    """Only tokens that a list returned are understood; the error says so."""
    with pytest.raises(InvalidPageTokenError, match="page token"):
        await task_views.list_tasks(TaskQuery(owner=new_id(), page_token=token))
