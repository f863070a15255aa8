"""Many tasks that wait for their users: resource use, and the response time for returning users."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from statistics import median

from redis.asyncio import Redis

from bench.growing.plots import Curve, Panel
from bench.orders import Order
from bench.runs import ask_gateway, send_answer, send_question
from bench.stack import Stack, memory_of, processor_ms

QUESTION: Order = {"iterations": 0, "asks": True}
AT_ONCE = 16
SAMPLES = 20
REST = 10.0
"""Seconds without requests, to measure the cost of open tasks alone."""

Point = dict[str, float]

PANELS = {
    "worker and gateway, MiB": ("worker", "gateway"),
    "Redis, KB a task": ("Redis",),
    "processors at rest, ms a second": (
        "worker at rest",
        "gateway at rest",
        "Temporal at rest",
        "Valkey at rest",
    ),
    "GetTask and a page of ListTasks, ms": ("GetTask", "ListTasks"),
    "answer to completed, ms": ("answered newest", "answered any"),
}


async def open_tasks(
    stack: Stack, numbers: Iterable[int], limit: float, say: Callable[[str], None]
) -> list[Panel]:
    """Open tasks up to each number, and measure; stop before a step that would end after `limit` seconds."""
    found: dict[int, Point] = {}
    ids: list[str] = []
    begin, empty = time.monotonic(), await _redis_bytes(stack)
    for number in numbers:
        pace = (time.monotonic() - begin) / len(ids) if ids else 0.0
        if time.monotonic() - begin + pace * (number - len(ids)) > limit:
            say(f"{number} open tasks would take longer than {limit:.0f} s")
            break
        while len(ids) < number:
            group = range(min(AT_ONCE, number - len(ids)))
            ids += await asyncio.gather(*(send_question(stack, QUESTION) for _ in group))
        found[number] = await _look(stack, ids, empty)
        say(f"{number} open: " + ", ".join(f"{key} {value:.3g}" for key, value in found[number].items()))
    return [
        Panel(
            title, "open tasks", [Curve(key, {x: point[key] for x, point in found.items()}) for key in keys]
        )
        for title, keys in PANELS.items()
    ]


async def _look(stack: Stack, ids: list[str], empty: int) -> Point:
    servers = {
        "worker": stack.everloop.worker,
        "gateway": stack.gateway.process,
        "Temporal": stack.deployment.temporal,
        "Valkey": stack.deployment.valkey,
    }
    before = {name: processor_ms(server) for name, server in servers.items()}
    await asyncio.sleep(REST)
    rest = {f"{name} at rest": (processor_ms(at) - before[name]) / REST for name, at in servers.items()}
    used = await _redis_bytes(stack) - empty
    some = random.Random(len(ids)).sample(ids, SAMPLES)  # noqa: S311 -- which tasks are asked for
    return {
        "worker": memory_of(stack.everloop.worker),
        "gateway": memory_of(stack.gateway.process),
        "Redis": used / len(ids) / 1000,
        **rest,
        "GetTask": await _typical(partial(ask_gateway, stack, "GetTask", {"id": one}) for one in some),
        "ListTasks": await _typical(partial(ask_gateway, stack, "ListTasks", {}) for _ in some),
        "answered newest": await _answered(stack, ids, ids[-SAMPLES:]),
        "answered any": await _answered(stack, ids, some),
    }


async def _redis_bytes(stack: Stack) -> int:
    async with Redis.from_url(stack.redis_url) as redis:
        return (await redis.info("memory"))["used_memory"]


async def _answered(stack: Stack, ids: list[str], chosen: list[str]) -> float:
    there = [one for one in chosen if one in ids]
    for one in there:
        ids.remove(one)
    return await _typical(partial(send_answer, stack, one) for one in there)


async def _typical(calls: Iterable[Callable[[], Awaitable[object]]]) -> float:
    """Return the median time of a call, in milliseconds."""
    samples: list[float] = []
    for call in calls:
        begin = time.perf_counter()
        await call()
        samples.append((time.perf_counter() - begin) * 1000)
    return median(samples)
