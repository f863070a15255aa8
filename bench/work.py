"""Durable work beside bare Temporal: milliseconds an iteration, tasks a second, bytes of history."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import fmean, median

from temporalio.api.enums.v1 import EventType

from bench.rows import Row, Samples, in_turn
from bench.runs import Run, iterations_order, run_floor, run_task, runs_of, send_message
from bench.stack import Stack

ITERATIONS = 20
SHORT = 5
CONCURRENT = 50
LONG = 100
EDGE = 10
"""How many iterations at the beginning and at the end of a long task are compared."""

EARLY, LATE = 10, 200
WEIGHED = ((2_000, 210), (20_000, 300))
"""Bytes of a tool result, and iterations: the second task goes on in a new run on its way."""

MODEL_MESSAGE = 200
"""Bytes of the reply that asks for a tool, about."""

ALLOWANCE = 4_096
"""Bytes of events that an iteration may have besides its messages."""

AIMED_RATIO = 1.5
AIMED_GROWTH = 1.2


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
    floor = await _iteration_bytes(stack, await run_floor(stack, LONG), "ask")
    rows = [Row("history of an iteration without content", "B", floor=fmean(floor))]
    for size, length in WEIGHED:
        run = await run_task(stack, length, size=size)
        added = await _iteration_bytes(stack, run, "call_model")
        early, late = (fmean(added[at - EDGE // 2 : at + EDGE // 2]) for at in (EARLY, LATE))
        content = size + MODEL_MESSAGE
        samples = {"bytes": added}
        measure = f"history of an iteration of {size // 1000} KB"
        aim = AIMED_RATIO * (content + ALLOWANCE)
        rows.append(Row(f"{measure}, near {EARLY}", "B", early, aim=aim, samples=samples))
        rows.append(Row(f"{measure}, near {LATE}", "B", late, aim=aim))
        rows.append(Row(f"{measure}, near {LATE} to near {EARLY}", "x", late / early, aim=AIMED_GROWTH))
    return [*rows, await _slowdown(stack, rounds)]


async def _iteration_bytes(stack: Stack, run: Run, model_activity: str) -> Samples:
    """Return the bytes of history of each iteration, over all runs of the task.

    An iteration begins where its model call is scheduled. What begins and ends a run, the state that is
    carried along included, counts for the iteration in which it happens; payloads that lie in the blob store
    do not: each was written once, and history holds a reference.
    """
    sizes: Samples = []
    for run_id in await runs_of(stack, run.id):
        async for event in stack.temporal.get_workflow_handle(run.id, run_id=run_id).fetch_history_events():
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == model_activity:
                sizes.append(0)
            if sizes:
                sizes[-1] += event.ByteSize()
    return sizes


async def _slowdown(stack: Stack, rounds: int) -> Row:
    floor, ours = await in_turn(
        rounds,
        lambda: _last_to_first(run_floor(stack, LONG), "ask"),
        lambda: _last_to_first(run_task(stack, LONG), "call_model"),
    )
    samples = {"floor": floor, "everloop": ours}
    measure = f"last {EDGE} of {LONG} iterations to first {EDGE}"
    return Row(measure, "x", median(ours), median(floor), samples=samples)


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
