"""Tasks of five iterations, from one to a thousand at once: cost and duration of each.

The same tasks also run on a cluster of one, two and three primaries, to measure the load of each
primary.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from temporalio.client import Client

from bench.growing.plots import Curve, Panel
from bench.sides import Everloop, Side
from bench.stack import AGENT, Stack, memory_of, processor_ms
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.redis_cluster import running_redis_cluster

SHORT = 5
LEAST = 20
"""Least number of tasks at low concurrency."""

Point = dict[str, float]

PANELS = {
    "a task lasts, s": "seconds",
    "tasks a second": "rate",
    "worker, processor ms a task": "worker",
    "Temporal, processor ms a task": "Temporal",
    "Valkey, processor ms a task": "Valkey",
    "worker, MiB": "memory",
}


async def at_once(stack: Stack, numbers: Iterable[int], say: Callable[[str], None]) -> list[Panel]:
    """Return the figures of each side."""
    names = ("floor", "usual loop", "Everloop")
    found: dict[str, dict[int, Point]] = {name: {} for name in names}
    for number in numbers:
        for name, side in zip(names, stack.sides, strict=True):
            found[name][number] = await _run(stack, side, number)
            say(f"{name}, {number} at once: {_told(found[name][number])}")
    return [
        Panel(
            title,
            "at once",
            [Curve(name, {x: point[key] for x, point in points.items()}) for name, points in found.items()],
        )
        for title, key in PANELS.items()
    ]


async def _run(stack: Stack, side: Side, number: int) -> Point:
    servers = {
        "worker": side.worker,
        "Temporal": stack.deployment.temporal,
        "Valkey": stack.deployment.valkey,
    }
    before = {name: processor_ms(server) for name, server in servers.items()}
    begin, lasted, tasks = time.perf_counter(), list[float](), max(number, LEAST)

    async def one_after_the_other(count: int) -> None:
        for _ in range(count):
            started = time.perf_counter()
            await side.run(SHORT)
            lasted.append(time.perf_counter() - started)

    await asyncio.gather(*(one_after_the_other(tasks // number) for _ in range(number)))
    seconds = time.perf_counter() - begin
    used = {name: (processor_ms(server) - before[name]) / tasks for name, server in servers.items()}
    return {
        **used,
        "seconds": median(lasted),
        "rate": tasks / seconds,
        "memory": memory_of(side.worker),
    }


def _told(point: Point) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in point.items())


# On clusters.

TASKS = 120
TOGETHER = 12


async def cluster(directory: Path, model_url: str, primaries: int, say: Callable[[str], None]) -> None:
    """Run tasks of many owners, each with its view, its stream and its transcript, and report their cost."""
    folder = directory / f"primaries-{primaries}"
    folder.mkdir()
    async with (
        running_redis_cluster(folder / "cluster", primaries=primaries) as redis,
        running_deployment(folder, model_url, agents=AGENT, EVERLOOP_REDIS_URL=redis.url) as deployment,
    ):
        temporal = await Client.connect(deployment.temporal_address, data_converter=WIRE_DATA_CONVERTER)
        side = Everloop(temporal, deployment.environment["EVERLOOP_TASK_QUEUE"], deployment.add_worker)
        await side.start_worker()
        await side.run(SHORT)
        servers = [node.process for node in redis.nodes[:primaries]]
        before = [processor_ms(server) for server in servers]
        for _ in range(TASKS // TOGETHER):
            await asyncio.gather(*(side.run(SHORT) for _ in range(TOGETHER)))
        used = [(processor_ms(server) - early) / TASKS for server, early in zip(servers, before, strict=True)]
        each = ", ".join(f"{ms:.1f}" for ms in used)
        say(f"{primaries} primaries: {each} ms a task on each, {sum(used):.1f} ms on all")
