"""Pages of ListTasks: milliseconds per page, with few tasks and with many."""

import time
from datetime import UTC, datetime
from functools import partial
from statistics import median
from uuid import uuid4

from bench.agent import agent
from bench.rows import Row, Samples, in_turn
from bench.stack import Stack
from everloop.gateway.context import ANONYMOUS
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView
from tests.support.many_tasks import copy_task

FEW, MANY = 1_000, 100_000
PAGES = 20
"""Pages of fifty tasks per sample."""


async def lists(stack: Stack, rounds: int) -> list[Row]:
    """Measure a page of a context with few tasks beside one with many; both filtered by state too."""
    contexts = [await _context_of(stack, count) for count in (FEW, MANY)]
    few, many = await in_turn(rounds, *(partial(_page_through, stack, context) for context in contexts))
    measure = f"page of ListTasks, {FEW:,} / {MANY:,} tasks"
    samples = {"everloop": many, "floor": few}
    return [Row(measure, "ms", median(many), median(few), samples=samples)]


async def _context_of(stack: Stack, count: int) -> str:
    """Create a context with this number of completed tasks, and return its id."""
    now = datetime.now(UTC)
    view = TaskView(
        task_id=str(uuid4()),
        context_id=str(uuid4()),
        owner=ANONYMOUS,
        agent_id=agent.id,
        created_at=now,
        status=TaskStatus(state=TaskState.COMPLETED, at=now),
    )
    async with connect_redis(stack.redis_url) as redis:
        await TaskViews(redis).create(view)
        await copy_task(redis, view, count - 1)
    return view.context_id


async def _page_through(stack: Stack, context_id: str) -> Samples:
    samples: Samples = []
    params = {"contextId": context_id, "status": "TASK_STATE_COMPLETED", "pageToken": ""}
    for _ in range(PAGES):
        begin = time.perf_counter()
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
        answer = await stack.http.post(stack.gateway_url, json=body, headers={"A2A-Version": "1.0"})
        samples.append((time.perf_counter() - begin) * 1000)
        params["pageToken"] = answer.json()["result"]["nextPageToken"]
    return samples
