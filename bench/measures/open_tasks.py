"""Tasks that wait for their user: memory, and the delay before an answer is processed."""

import asyncio
import time
from functools import partial

from bench.rows import Row, Samples, compared, in_turn
from bench.sides import Parked, Side
from bench.stack import Stack, memory_of

WARM_UP = 50
PARKED = 250
AT_ONCE = 10

ITERATIONS = 50
ANSWERS = 3


async def open_tasks(stack: Stack, rounds: int) -> list[Row]:
    """Weigh the cached state of tasks in a worker that have asked a question after an iteration."""
    found = await in_turn(min(rounds, 2), *(partial(_weigh, side) for side in stack.sides))
    return [compared("worker, 1,000 open tasks", "MiB", *found)]


async def _weigh(side: Side) -> Samples:
    await side.restart_worker()
    await park(side, WARM_UP)
    before = memory_of(side.worker)
    await park(side, PARKED)
    return [(memory_of(side.worker) - before) * 1000 / PARKED]


async def park(side: Side, count: int, iterations: int = 1) -> list[Parked]:
    """Park this number of tasks, a few at once."""
    parked: list[Parked] = []
    for begin in range(0, count, AT_ONCE):
        group = range(min(AT_ONCE, count - begin))
        parked += await asyncio.gather(*(side.park(iterations) for _ in group))
    return parked


async def answers(stack: Stack, rounds: int) -> list[Row]:
    """Time the answer to long tasks that the worker has cached, and to those that it has to replay."""
    cached = await in_turn(rounds, *(partial(_answer, side, is_cached=True) for side in stack.sides))
    replayed = await in_turn(rounds, *(partial(_answer, side, is_cached=False) for side in stack.sides))
    pairs = zip(cached, replayed, strict=True)
    shares = [[late - sorted(kept)[len(kept) // 2] for late in again] for kept, again in pairs]
    return [
        compared(f"answer after {ITERATIONS} iterations, cached", "ms", *cached),
        compared(f"answer after {ITERATIONS} iterations, replayed", "ms", *replayed),
        compared(f"answer after {ITERATIONS} iterations, share of the replay", "ms", *shares),
    ]


async def _answer(side: Side, *, is_cached: bool) -> Samples:
    parked = await park(side, ANSWERS, ITERATIONS)
    if not is_cached:
        await side.restart_worker()
        await side.run(1)
    samples: Samples = []
    for one in parked:
        begin = time.perf_counter()
        await side.answer(one)
        samples.append((time.perf_counter() - begin) * 1000)
    return samples
