"""A list of many tasks: what a page costs in Redis does not depend on how many there are."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import cast

from redis.asyncio import Redis

from everloop.stores.views.interface import TaskQuery
from everloop.stores.views.redis import RedisTaskViews
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import AGENT_ID, new_id, status, submitted, view_of
from tests.support.many_tasks import copy_task

FEW, MANY, PAGE = 300, 6_000, 100


@dataclass(frozen=True)
class Cost:
    """What Redis did: commands, those in scripts too, and bytes that it sent."""

    commands: int
    sent: int

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.commands - other.commands, self.sent - other.sent)


async def create_few(views: RedisTaskViews, owner: str) -> TaskView:
    """Create tasks that have failed, each older than the one before, and return the last one."""
    ids = [new_id() for _ in range(FEW)]
    for number, task_id in enumerate(ids):
        await views.create(submitted(task_id, owner=owner, context_id="context"))
        await views.publish(task_id, "run", [status(1, TaskState.FAILED, seconds=-number)])
    return await view_of(views, ids[-1])


async def cost_so_far(redis: Redis) -> Cost:
    stats = cast("dict[str, dict[str, int] | int]", await redis.info("commandstats", "stats"))
    # What is asked here is left out; INFO answers with about as many bytes each time.
    calls = sum(of["calls"] for name, of in stats.items() if isinstance(of, dict) and name != "cmdstat_info")
    sent = stats["total_net_output_bytes"]
    assert isinstance(sent, int)
    return Cost(calls, sent)


@dataclass(frozen=True)
class Measured:
    """A page, the token that led to it, and what it cost."""

    token: str
    ids: list[str]
    total: int
    cost: Cost


async def pages(redis: Redis, views: RedisTaskViews, query: TaskQuery) -> AsyncGenerator[Measured]:
    """Yield every page of a list from the query's on."""
    before = await cost_so_far(redis)
    while True:
        page = await views.list_tasks(query)
        after = await cost_so_far(redis)
        yield Measured(query.page_token, [view.task_id for view in page.views], page.total, after - before)
        if not page.next_page_token:
            return
        before, query = after, replace(query, page_token=page.next_page_token)


async def test_a_page_of_a_long_list_costs_what_one_of_a_short_list_does(own_redis: Redis) -> None:
    """Every page, first to last, with filters and without; paging lists every task once."""
    views, owner = RedisTaskViews(own_redis), new_id()
    query = TaskQuery(owner, AGENT_ID, page_size=PAGE, with_history=0, with_artifacts=False)
    filters = {"context_id": "context", "state": TaskState.FAILED, "updated_since": 0}
    last = await create_few(views, owner)
    few = [page.cost async for page in pages(own_redis, views, query)]

    await copy_task(own_redis, last, MANY - FEW)
    many = [page async for page in pages(own_redis, views, query)]
    narrow: list[Measured] = []
    for page in many[::10]:
        filtered = replace(query, page_token=page.token, **filters)
        narrow.append(await anext(pages(own_redis, views, filtered)))

    assert {page.total for page in [*many, *narrow]} == {MANY}
    assert len({task_id for page in many for task_id in page.ids}) == MANY
    assert [page.ids for page in narrow] == [page.ids for page in many[::10]]
    costs = [page.cost for page in [*many, *narrow]]
    assert max(cost.commands for cost in costs) == max(cost.commands for cost in few)
    assert max(cost.sent for cost in costs) <= 1.2 * max(cost.sent for cost in few)
