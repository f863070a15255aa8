"""Durable work beside bare Temporal: milliseconds an iteration, tasks a second, bytes of history."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from statistics import median

from temporalio.api.enums.v1 import EventType

from tests.bench.rows import Row, Samples, in_turn
from tests.bench.runs import Run, iterations_order, run_floor, run_task, send_message
from tests.bench.stack import Stack

ITERATIONS = 20
SHORT = 5
CONCURRENT = 50
LENGTHS = (5, 20, 50, 100)
LONG = LENGTHS[-1]
EDGE = 10
"""How many iterations at the beginning and at the end of a long task are compared."""

AIMED_RATIO = 1.5
AIMED_GROWTH = 1.05
"""Growth that still counts as none: positions and counts get more digits."""


async def iteration(stack: Stack, rounds: int) -> list[Row]:
    """Time 20 iterations from start to result. A task has one model call more, which gives its answer."""
    floor, task, sent = await in_turn(
        rounds,
        partial(_per_iteration, lambda: run_floor(stack, ITERATIONS)),
        partial(_per_iteration, lambda: run_task(stack, ITERATIONS)),
        partial(_per_iteration, lambda: send_message(stack, iterations_order(ITERATIONS))),
    )
    sides = {"through Temporal's client": task, "through SendMessage": sent}
    return [
        Row(
            measure=f"an iteration of 2 KB, {how}",
            unit="ms",
            everloop=median(ours),
            floor=median(floor),
            aim=AIMED_RATIO * median(floor),
            samples={"floor": floor, "everloop": ours},
        )
        for how, ours in sides.items()
    ]


async def _per_iteration(run: Callable[[], Awaitable[object]]) -> Samples:
    begin = time.perf_counter()
    await run()
    return [(time.perf_counter() - begin) * 1000 / ITERATIONS]


async def throughput(stack: Stack, rounds: int) -> list[Row]:
    """Count the tasks of 5 iterations that end in a second while 50 of them run at once."""
    floor, ours = await in_turn(
        rounds,
        partial(_per_second, lambda: run_floor(stack, SHORT)),
        partial(_per_second, lambda: run_task(stack, SHORT)),
    )
    return [
        Row(
            measure="tasks of 5 iterations, 50 at once",
            unit="/s",
            everloop=median(ours),
            floor=median(floor),
            aim=median(floor) / AIMED_RATIO,
            more_is_better=True,
            samples={"floor": floor, "everloop": ours},
        )
    ]


async def _per_second(run: Callable[[], Awaitable[object]]) -> Samples:
    begin = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(CONCURRENT)))
    return [CONCURRENT / (time.perf_counter() - begin)]


async def history(stack: Stack, rounds: int) -> list[Row]:
    """Weigh histories, and see whether a long task gets slower: both must not depend on its length."""
    sizes = {length: await _history_bytes(await run_task(stack, length)) for length in LENGTHS}
    floor_size = await _history_bytes(await run_floor(stack, LONG))
    rows = [Row(f"history an iteration without content, {LONG} iterations", "B", floor=floor_size / LONG)]
    for length, size in sizes.items():
        rows.append(Row(f"history an iteration of 2 KB, {length} iterations", "B", size / length))
    added = [(sizes[more] - sizes[less]) / (more - less) for less, more in pairwise(LENGTHS)]
    growth = Row(
        measure=f"history added by an iteration, {LENGTHS[-2]}-{LONG} to {LENGTHS[0]}-{LENGTHS[1]}",
        unit="x",
        everloop=added[-1] / added[0],
        aim=AIMED_GROWTH,
        samples={"bytes": [float(size) for size in sizes.values()]},
    )
    return [*rows, growth, await _slowdown(stack, rounds)]


async def _slowdown(stack: Stack, rounds: int) -> Row:
    floor, ours = await in_turn(
        rounds,
        lambda: _last_to_first(run_floor(stack, LONG), "ask"),
        lambda: _last_to_first(run_task(stack, LONG), "call_model"),
    )
    samples = {"floor": floor, "everloop": ours}
    measure = f"last {EDGE} of {LONG} iterations to first {EDGE}"
    return Row(measure, "x", median(ours), median(floor), samples=samples)


async def _history_bytes(run: Run) -> int:
    description = await run.describe()
    return description.raw_description.workflow_execution_info.history_size_bytes


async def _last_to_first(running: Awaitable[Run], model_activity: str) -> Samples:
    """Return how much longer the last iterations took; each begins when its model call is scheduled."""
    run = await running
    begins: list[int] = []
    last = 0
    async for event in run.fetch_history_events():
        last = event.event_time.ToNanoseconds()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == model_activity:
                begins.append(last)
    marks = [*begins, last][: LONG + 1]
    return [(marks[-1] - marks[-1 - EDGE]) / (marks[EDGE] - marks[0])]
