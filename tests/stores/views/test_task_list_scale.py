"""A list of many tasks: what a page costs in Redis does not depend on how many there are."""

from dataclasses import replace
from typing import cast

import pytest
from redis.asyncio import Redis

from everloop.stores.views.interface import TaskQuery
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.tasks import TaskState
from tests.stores.examples import AGENT_ID, new_id, status, submitted, view_of
from tests.support.many_tasks import copy_task

FEW, MANY, PAGE = 300, 6_000, 100


async def commands(redis: Redis) -> int:
    """Return how many commands Redis has carried out, those of scripts too."""
    stats = cast("dict[str, dict[str, int]]", await redis.info("commandstats"))
    return sum(of["calls"] for name, of in stats.items() if name != "cmdstat_info")


async def costs(redis: Redis, query: TaskQuery, total: int) -> list[int]:
    """Return what each page of a list costs; together they hold every task once."""
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


@pytest.mark.one_server  # it counts the commands of one
async def test_a_page_of_a_long_list_costs_what_one_of_a_short_list_does(own_redis: Redis) -> None:
    """Every page, first to last, with filters and without."""
    views, owner, ids = TaskViews(own_redis), new_id(), [new_id() for _ in range(FEW)]
    for number, task_id in enumerate(ids):
        await views.create(submitted(task_id, owner=owner, context_id="context"))
        await views.publish(task_id, "run", [status(1, TaskState.FAILED, seconds=-number)])
    query = TaskQuery(owner, AGENT_ID, page_size=PAGE, with_history=0, with_artifacts=False)
    few = max(await costs(own_redis, query, FEW))

    await copy_task(own_redis, await view_of(views, ids[-1]), MANY - FEW)

    for filters in ({}, {"context_id": "context", "state": TaskState.FAILED, "updated_since": 0}):
        assert max(await costs(own_redis, replace(query, **filters), MANY)) <= few
