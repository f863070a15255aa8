"""Lists of tasks: order, filters, pages and loaded fields."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import (
    IndexEntry,
    InvalidPageTokenError,
    TaskPage,
    TaskQuery,
    encode_page_token,
)
from everloop.workflows.contract.fold import microseconds
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import AGENT_ID, at, new_id, said, status, submitted, view_of
from tests.support.many_tasks import copy_task


async def create_many(
    views: TaskViews, owner: str, seconds: Sequence[float], context_id: str = ""
) -> list[str]:
    """Create one task for each time, and return the ids newest first."""
    tasks = [submitted(owner=owner, seconds=second, context_id=context_id) for second in seconds]
    for task in tasks:
        await views.create(task)
    return [t.task_id for t in sorted(tasks, key=lambda t: (t.status.at, t.task_id), reverse=True)]


def of(owner: str, **fields: object) -> TaskQuery:
    """Return a query for the tasks of an owner."""
    return TaskQuery(owner, AGENT_ID, **fields)  # pyright: ignore[reportArgumentType] -- a table of filters


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
        assert len(set(found)) == len(found)
    return found


async def test_a_list_holds_the_tasks_of_one_owner_and_agent(task_views: TaskViews) -> None:
    """A list has the tasks of one owner and agent, newest status first, even in a shared context."""
    owner, context_id = new_id(), new_id()
    ids = await create_many(task_views, owner, [1, 2, 3], context_id)
    other = submitted(owner=owner, context_id=context_id, agent_id="other")
    await task_views.create(other)
    await create_many(task_views, new_id(), [4], context_id)

    for context, state in product((None, context_id), (None, TaskState.SUBMITTED)):
        query = of(owner, context_id=context, state=state)
        page = await task_views.list_tasks(query)
        theirs = await task_views.list_tasks(replace(query, agent_id="other"))
        assert (ids_of(page), page.total, page.next_page_token) == (ids, 3, "")
        assert (ids_of(theirs), theirs.total) == ([other.task_id], 1)
    await task_views.publish(ids[-1], "run", [status(9)])
    page = await task_views.list_tasks(of(owner))
    assert ids_of(page) == [ids[2], ids[0], ids[1]]
    assert page.views[0] == await view_of(task_views, ids[2])


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
async def test_pages_join_to_the_whole_list(task_views: TaskViews, page_size: int) -> None:
    """Pages have each task once, also with equal or nearly equal times."""
    owner = new_id()
    ids = await create_many(task_views, owner, [1, 2, 2, 2, 2, 2, 2.000001, 2.000002, 3])

    assert await page_through(task_views, of(owner, page_size=page_size)) == ids


async def test_the_place_of_a_page_is_exact_among_tasks_of_the_same_time(task_views: TaskViews) -> None:
    """A page continues exactly among tasks of equal time, even if its last task has moved."""
    owner = new_id()
    ids = await create_many(task_views, owner, [1] * 30)
    first = await task_views.list_tasks(of(owner, page_size=10))
    await task_views.publish(ids[9], "run", [status(8)])

    rest = await page_through(task_views, of(owner, page_size=7, page_token=first.next_page_token))

    assert rest == ids[10:]
    assert (await task_views.list_tasks(of(owner, page_token=first.next_page_token))).total == 30


async def test_a_page_ends_where_it_would_be_too_large(task_views: TaskViews) -> None:
    """A page that would be too large has fewer tasks, and its token continues.

    A task that is too large for any page is returned without its messages, and with its size.
    """
    owner, sizes = new_id(), (3, 3, 3, 9, 0, 3)  # newest first, in MB; 8 at most, encrypted
    tasks = [submitted(owner=owner, seconds=-age) for age in range(len(sizes))]
    for task, size in zip(tasks, sizes, strict=True):
        large = (said("large", "x" * size * 950_000),)
        await task_views.create(task.model_copy(update={"history": large}))
    ids, query = [task.task_id for task in tasks], of(owner, page_size=5)
    without_messages = await task_views.list_tasks(
        replace(query, page_size=6, with_history=0, with_artifacts=False)
    )
    pages = [await task_views.list_tasks(query)]
    while pages[-1].next_page_token:
        pages.append(await task_views.list_tasks(replace(query, page_token=pages[-1].next_page_token)))

    assert ids_of(without_messages) == ids == [task_id for page in pages for task_id in ids_of(page)]
    assert [len(page.views) for page in pages] == [2, 4]
    assert [[len(view.history) for view in page.views] for page in pages] == [[1, 1], [1, 0, 1, 1]]
    (left_out,) = [page.left_out for page in pages if page.left_out]
    assert left_out.keys() == {ids[3]}
    assert left_out[ids[3]] >= 9 * 950_000
    assert not without_messages.left_out
    assert {page.total for page in pages} == {len(ids)}


async def test_filters_narrow_list_and_total(task_views: TaskViews) -> None:
    """Context, state and time filter list and total, alone and combined; an equal time is included."""
    owner, context_id = new_id(), new_id()
    elsewhere = await create_many(task_views, owner, [1, 5])
    inside = await create_many(task_views, owner, [2, 3, 4], context_id)
    await task_views.publish(inside[2], "run", [status(1, TaskState.COMPLETED, seconds=6)])
    await task_views.publish(elsewhere[1], "run", [status(1, TaskState.COMPLETED, seconds=7)])
    ranked = [elsewhere[1], inside[2], elsewhere[0], inside[0], inside[1]]
    completed, recent = {elsewhere[1], inside[2]}, set(ranked[:4])

    for context, state, since in product(
        (None, context_id), (None, TaskState.COMPLETED), (None, microseconds(at(4)))
    ):
        page = await task_views.list_tasks(
            of(owner, context_id=context, state=state, updated_since=since, page_size=1)
        )
        expected = [
            task_id
            for task_id in ranked
            if (context is None or task_id in inside)
            and (state is None or task_id in completed)
            and (since is None or task_id in recent)
        ]
        found = await page_through(
            task_views, of(owner, context_id=context, state=state, updated_since=since, page_size=1)
        )
        assert (found, page.total) == (expected, len(expected))
    for nothing in (of(owner, state=TaskState.FAILED), of(owner, context_id=new_id()), of(new_id())):
        assert await task_views.list_tasks(nothing) == TaskPage((), 0, "")


FOREIGN_TOKENS = ["x", "%%%", "5", base64.urlsafe_b64encode(b"abc").decode(), "MTI6YQ", "MTI6YQ==\n", "é"]
FAR_TOKENS = [encode_page_token(IndexEntry(time, "a")) for time in (10**400, -(2**53))]


@pytest.mark.parametrize("token", [*FOREIGN_TOKENS, *FAR_TOKENS])
async def test_a_foreign_page_token_is_refused(task_views: TaskViews, token: str) -> None:
    """A token that no list returned is refused with an error that says so."""
    with pytest.raises(InvalidPageTokenError, match="page token"):
        await task_views.list_tasks(of(new_id(), page_token=token))


async def test_a_token_is_a_place_whatever_list_it_is_used_with(task_views: TaskViews) -> None:
    """A token is a position: with other filters, agents or owners it continues with their tasks."""
    owner, other, context_id = new_id(), new_id(), new_id()
    await create_many(task_views, owner, [5, 6])
    inside = await create_many(task_views, owner, [1, 9], context_id)
    theirs = await create_many(task_views, other, [2, 9])
    token = (await task_views.list_tasks(of(owner, page_size=2))).next_page_token

    async def found(query: TaskQuery) -> list[str]:
        return ids_of(await task_views.list_tasks(replace(query, page_token=token)))

    assert await found(of(owner, context_id=context_id)) == [inside[1]]
    assert await found(of(other)) == [theirs[1]]
    assert await found(TaskQuery(owner, "other")) == []


FEW, MANY, PAGE = 300, 6_000, 100


async def commands(redis: Redis) -> int:
    """Return the number of commands that Redis has executed, with those of scripts."""
    stats = cast("dict[str, dict[str, int]]", await redis.info("commandstats"))
    return sum(of["calls"] for name, of in stats.items() if name != "cmdstat_info")


async def costs(redis: Redis, query: TaskQuery, total: int) -> list[int]:
    """Return the cost of each page of a list; together they have each task once."""
    views, found, costs = TaskViews(redis), set[str](), list[int]()
    while query.page_token or not costs:
        before = await commands(redis)
        page = await views.list_tasks(query)
        costs.append(await commands(redis) - before)
        assert page.total == total
        found |= {view.task_id for view in page.views}
        query = replace(query, page_token=page.next_page_token)
    assert len(found) == total
    return costs


@pytest.mark.one_server  # it counts the commands of one server
async def test_a_page_of_a_long_list_costs_what_one_of_a_short_list_does(own_redis: Redis) -> None:
    """A page of a long list costs the same as one of a short list: each page, filtered or not."""
    views, owner, ids = TaskViews(own_redis), new_id(), [new_id() for _ in range(FEW)]
    for number, task_id in enumerate(ids):
        await views.create(submitted(task_id, owner=owner, context_id="context"))
        await views.publish(task_id, "run", [status(1, TaskState.FAILED, seconds=-number)])
    query = TaskQuery(owner, AGENT_ID, page_size=PAGE, with_history=0, with_artifacts=False)
    few = max(await costs(own_redis, query, FEW))

    await copy_task(own_redis, await view_of(views, ids[-1]), MANY - FEW)

    for filters in ({}, {"context_id": "context", "state": TaskState.FAILED, "updated_since": 0}):
        assert max(await costs(own_redis, replace(query, **filters), MANY)) <= few
