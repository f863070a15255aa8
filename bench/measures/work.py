"""Durable work: time of an iteration, tasks per second, and the cost of each in history and in Redis."""

import asyncio
import time
from functools import partial
from pathlib import Path
from statistics import fmean

from redis.asyncio import Redis
from temporalio.api.enums.v1 import EventType

from bench.costs.stores import Stores, StoreUse
from bench.orders import Order, iterations_order
from bench.rows import Row, Samples, compared, in_turn
from bench.runs import runs_of, send_message
from bench.sides import Run, Side
from bench.stack import Stack, processor_ms

ITERATIONS = 20
SHORT = 5
CONCURRENT = 50
LONG = 100
EDGE = 10
"""Number of compared iterations at the beginning and at the end of a long task."""

EARLY, LATE = 10, 200
LARGE, LONGER = 20_000, 300
"""Bytes of a tool result, and iterations, of a task that continues in a new run."""

TOOL, QUICK = "produce", "produce_quickly"

PROCESSORS = ("worker", "Temporal", "Valkey")


async def iteration(stack: Stack, rounds: int) -> list[Row]:
    """Time 20 iterations from start to result. A task has one model call more, which gives its answer."""
    *found, quick = await in_turn(
        rounds,
        *(partial(_per_iteration, side) for side in stack.sides),
        partial(_per_iteration, stack.everloop, QUICK),
    )
    floor, naive, _ = found
    return [
        compared("an iteration of 2 KB", "ms", *found),
        compared("an iteration of 2 KB, quick tool", "ms", floor, naive, quick),
    ]


async def _per_iteration(side: Side, tool: str = TOOL) -> Samples:
    begin = time.perf_counter()
    await side.run(ITERATIONS, tool=tool)
    return [(time.perf_counter() - begin) * 1000 / ITERATIONS]


async def throughput(stack: Stack, rounds: int) -> list[Row]:
    """Count the tasks of 5 iterations that end per second while 50 run at once, and the cost of each."""
    contenders = [*((side, TOOL) for side in stack.sides), (stack.everloop, QUICK)]
    used = [{name: Samples() for name in PROCESSORS} for _ in contenders]
    floor, naive, *found = await in_turn(
        rounds, *(partial(_per_second, stack, *one, mine) for one, mine in zip(contenders, used, strict=True))
    )
    of_floor, of_naive, *of_ours = used
    rows: list[Row] = []
    for kind, rates, costs in zip(("", ", quick tool"), found, of_ours, strict=True):
        rows.append(
            compared(f"tasks of {SHORT} iterations{kind}, {CONCURRENT} at once", "/s", floor, naive, rates)
        )
        for name in PROCESSORS:
            measure = f"· {name}, processor a task{kind}"
            rows.append(compared(measure, "ms", of_floor[name], of_naive[name], costs[name]))
    return rows


async def _per_second(stack: Stack, side: Side, tool: str, used: dict[str, Samples]) -> Samples:
    servers = (side.worker, stack.deployment.temporal, stack.deployment.valkey)
    before = [processor_ms(server) for server in servers]
    begin = time.perf_counter()
    await asyncio.gather(*(side.run(SHORT, tool=tool) for _ in range(CONCURRENT)))
    seconds = time.perf_counter() - begin
    for name, server, early in zip(PROCESSORS, servers, before, strict=True):
        used[name].append((processor_ms(server) - early) / CONCURRENT)
    return [CONCURRENT / seconds]


async def history(stack: Stack, rounds: int) -> list[Row]:
    """Weigh histories, and check that long tasks do not get slower: neither may depend on length."""
    late: list[Samples] = [[] for _ in stack.sides]
    sizes = await in_turn(
        rounds,
        *(partial(_long_task, stack, side, mine) for side, mine in zip(stack.sides, late, strict=True)),
    )
    added = await _iteration_bytes(stack, stack.everloop, await stack.everloop.run(LONGER, size=LARGE))
    early, later = (fmean(added[at - EDGE // 2 : at + EDGE // 2]) for at in (EARLY, LATE))
    return [
        compared(f"history, {LONG} iterations of 2 KB", "KB", *sizes),
        Row(
            f"history of an iteration of {LARGE // 1000} KB, near {LATE} to near {EARLY}",
            "x",
            later / early,
            samples={"bytes": added},
        ),
        compared(f"last {EDGE} of {LONG} iterations to first {EDGE}", "x", *late),
    ]


async def _long_task(stack: Stack, side: Side, late: Samples) -> Samples:
    """Return the kilobytes of history of a long task, and record the extra time of its last iterations."""
    run = await side.run(LONG)
    late.append(await _last_to_first(run, side.model_activity))
    return [sum(await _iteration_bytes(stack, side, run)) / 1000]


async def _iteration_bytes(stack: Stack, side: Side, run: Run) -> Samples:
    """Return the bytes of history of each iteration, over all runs of the task.

    An iteration begins where its model call is scheduled. What begins and ends a run, the state that is
    carried along included, counts for the iteration in which it happens; payloads that lie in the blob store
    do not: each was written once, and history holds a reference.
    """
    sizes: Samples = []
    for run_id in await runs_of(stack, run.id):
        async for event in stack.temporal.get_workflow_handle(run.id, run_id=run_id).fetch_history_events():
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == side.model_activity:
                sizes.append(0)
            if sizes:
                sizes[-1] += event.ByteSize()
    return sizes


async def _last_to_first(run: Run, model_activity: str) -> float:
    """Return the extra time of the last iterations; each begins when its model call is scheduled."""
    begins: list[int] = []
    last = 0
    async for event in run.fetch_history_events():
        last = event.event_time.ToNanoseconds()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == model_activity:
                begins.append(last)
    marks = [*begins, last][: LONG + 1]
    return (marks[-1] - marks[-1 - EDGE]) / (marks[EDGE] - marks[0])


# Costs of a task in Redis, sent through the gateway.

TASKS = 10


async def redis_use(stack: Stack, _: int) -> list[Row]:
    """Count the commands of a plain answer, and weigh the stored data of "4 tools, answer"."""
    async with Redis.from_url(stack.redis_url) as redis:
        stores = Stores(redis, Path(stack.deployment.environment["EVERLOOP_BLOB_DIRECTORY"]))
        answer = await _use(stack, stores, iterations_order(0))
        work = await _use(stack, stores, iterations_order(4))
    return [
        Row("Redis commands of a plain answer", "", answer.commands),
        Row("Redis commands of 4 tools, answer", "", work.commands),
        Row("Redis byte-days of 4 tools, answer", "B", work.byte_days),
    ]


async def _use(stack: Stack, stores: Stores, order: Order) -> StoreUse:
    await send_message(stack, order)
    before = await stores.use()
    for _ in range(TASKS):
        await send_message(stack, order)
    return (await stores.use()).since(before, TASKS)
