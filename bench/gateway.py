"""The gateway of `everloop up` beside a2a-sdk's own server: `python -m bench.gateway`.

The agent has no model and returns at once, so that only the price of a durable task remains. Its floors
are two workflows on the same Temporal: an empty one, and one of two activities, as in a task that
answers at once. The sides run one after the other: with two cores they would disturb each other.
"""

import argparse
import asyncio
import importlib.util
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import uuid4

import httpx
import psutil
from redis.asyncio import Redis
from rich.table import Table
from temporalio.client import Client, WorkflowHandle

from bench.orders import Order
from bench.report import WIDTH, console, leave
from bench.rows import Samples, percentile
from bench.runs import message_of, result_of, streamed
from bench.stack import start_peer, start_server
from everloop.local.servers import LOOPBACK, free_port
from everloop.local.stack import LocalStack, running_stack
from everloop.local.stack_settings import load_settings

AGENT = "bench.agent:without_model"
FLOOR_QUEUE = "bench-floor"
WARM_UP = 20
REPEATS = 60
UNTIL_COMPLETED, FIRST_EVENT = "SendMessage until completed", "SendStreamingMessage, first event"
MANY = 50
MANY_REPEATS = 10
IDLE = 35.0
"""Seconds of silence of a task after which its state is verified."""

_console = console(WIDTH + 40)


@dataclass
class Use:
    """Use by a call: round trips to Redis and to Temporal by name, and ms of processors by process."""

    redis: Counter[str] = field(default_factory=Counter[str])
    temporal: Counter[str] = field(default_factory=Counter[str])
    processors: Counter[str] = field(default_factory=Counter[str])

    def since(self, earlier: "Use", calls: int) -> str:
        """Return the use per call as text."""
        parts: list[str] = []
        for name in ("redis", "temporal", "processors"):
            spent: Counter[str] = getattr(self, name)
            spent.subtract(getattr(earlier, name))
            each = {what: count / calls for what, count in spent.items() if count / calls >= 0.05}
            words = ", ".join(f"{what} {count:.1f}" for what, count in sorted(each.items()))
            parts.append(f"{name} {sum(each.values()):.1f} ({words})")
        return "; ".join(parts)


Measure = Callable[[], Awaitable[Use]]


@dataclass
class Side:
    """A measured server, or Temporal alone. `use` counts its resources, if that is possible."""

    name: str
    url: str = ""
    use: Measure | None = None
    figures: dict[str, str] = field(default_factory=dict[str, str])


async def measure(side: Side, http: httpx.AsyncClient, *, idle: bool) -> None:
    """Measure one side."""
    for _ in range(WARM_UP):
        await send(side, http)
    await _one_client(side, UNTIL_COMPLETED, lambda: send(side, http))
    await _one_client(side, FIRST_EVENT, lambda: first_event(side, http))
    tasks = [await send(side, http) for _ in range(REPEATS)]
    fresh = iter(tasks)
    await _one_client(side, "GetTask", lambda: get(side, http, next(fresh)))
    if idle:
        _console.print(f"{side.name}: idle for {IDLE:.0f} s", highlight=False)
        await asyncio.sleep(IDLE)
        old = iter(tasks)
        await _one_client(side, f"GetTask, idle for {IDLE:.0f} s", lambda: get(side, http, next(old)))
    await _many_clients(side, lambda: send(side, http))


async def measure_floor(side: Side, temporal: Client, *, iterations: int) -> None:
    """Measure Temporal alone with a workflow of these iterations, each of two activities."""

    async def start() -> WorkflowHandle[Any, Any]:
        order = Order(iterations=iterations)
        return await temporal.start_workflow(
            "Floor", args=[order, 1], id=str(uuid4()), task_queue=FLOOR_QUEUE
        )

    async def run() -> None:
        await (await start()).result()

    for _ in range(WARM_UP):
        await run()
    await _one_client(side, UNTIL_COMPLETED, run)
    await _one_client(side, FIRST_EVENT, start)
    await _many_clients(side, run)


async def _one_client(side: Side, name: str, call: Callable[[], Awaitable[object]]) -> None:
    samples, before = list[float](), await side.use() if side.use else None
    for _ in range(REPEATS):
        samples.append(await _timed(call))
    side.figures[f"{name}, p50"] = f"{percentile(samples, 50):.1f} ms"
    if before and side.use:
        _console.print(f"{name}: {(await side.use()).since(before, REPEATS)}", highlight=False)


async def _many_clients(side: Side, call: Callable[[], Awaitable[object]]) -> None:
    async def client() -> Samples:
        return [await _timed(call) for _ in range(MANY_REPEATS)]

    before = await side.use() if side.use else None
    begin = time.perf_counter()
    samples = [sample for each in await asyncio.gather(*(client() for _ in range(MANY))) for sample in each]
    rate = len(samples) / (time.perf_counter() - begin)
    p50, p99 = percentile(samples, 50), percentile(samples, 99)
    side.figures[f"{MANY} clients, SendMessage"] = f"{rate:.0f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    if before and side.use:
        used = (await side.use()).since(before, len(samples))
        _console.print(f"{MANY} clients, SendMessage: {used}", highlight=False)


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await call()
    return (time.perf_counter() - begin) * 1000


async def send(side: Side, http: httpx.AsyncClient) -> str:
    """Send a message, wait until its task has completed, and return its id."""
    task = (await result_of(http, side.url, "SendMessage", message_of("hello")))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return task["id"]


async def get(side: Side, http: httpx.AsyncClient, task_id: str) -> None:
    """Request a task."""
    assert (await result_of(http, side.url, "GetTask", {"id": task_id}))["id"] == task_id


async def first_event(side: Side, http: httpx.AsyncClient) -> None:
    """Send a message and wait for the first event; then close the stream."""
    async with aclosing(streamed(http, side.url, message_of("hello"))) as lines:
        line = await anext(lines)
    assert "result" in line, line


@asynccontextmanager
async def running_everloop(directory: Path) -> AsyncGenerator[tuple[Side, LocalStack]]:
    """Start the processes of `everloop up`."""
    environment = {"EVERLOOP_AGENTS": AGENT}
    settings = load_settings().on_free_ports()
    async with running_stack(directory, settings, lambda _: None, environment) as (stack, supervisor):
        services = ("temporal", "valkey", "worker", "gateway")
        processes = {name: psutil.Process(supervisor.pid(name)) for name in services}
        async with (
            Redis.from_url(stack.redis_url, decode_responses=True) as redis,
            httpx.AsyncClient() as http,
        ):
            yield Side("Everloop", stack.gateway_url, lambda: _use(stack, redis, http, processes)), stack


async def _use(
    stack: LocalStack, redis: Redis, http: httpx.AsyncClient, processes: Mapping[str, psutil.Process]
) -> Use:
    use = Use()
    stats = cast("Mapping[str, Mapping[str, Any]]", await redis.info("commandstats"))
    for name, each in stats.items():
        use.redis[name.removeprefix("cmdstat_")] = int(each["calls"])
    metrics = (await http.get(f"http://{LOOPBACK}:{stack.ports.temporal_metrics}/metrics")).text
    for line in metrics.splitlines():
        if found := _REQUESTS.match(line):
            use.temporal[found[1]] += round(float(found[2]))
    for name, process in processes.items():
        times = process.cpu_times()
        use.processors[name] = round((times.user + times.system) * 1000)
    return use


_REQUESTS = re.compile(r'service_requests\{.*operation="(\w+)".*service_name="frontend".*\} (\S+)')


@asynccontextmanager
async def running_floor(directory: Path, stack: LocalStack) -> AsyncGenerator[Client]:
    """Start a worker of bare workflows on this stack's Temporal."""
    address = {"TEMPORAL_ADDRESS": stack.temporal_address, "EVERLOOP_TASK_QUEUE": FLOOR_QUEUE}
    process = await start_peer("floor", directory / "floor.log", {**os.environ, **address})
    try:
        yield await Client.connect(stack.temporal_address)
    finally:
        process.kill()


@asynccontextmanager
async def running_peer(directory: Path, name: str, database: str) -> AsyncGenerator[Side]:
    """Start a2a-sdk's server."""
    port = free_port()
    process = await start_server("a2a_sdk", port, *filter(None, [database]), directory=directory)
    try:
        yield Side(name, f"http://{LOOPBACK}:{port}/")
    finally:
        process.kill()


async def _run(*, peers: bool, idle: bool) -> None:
    sides: list[Side] = []
    limits = httpx.Limits(max_connections=2 * MANY)
    for name in ("a2a-sdk in memory", "a2a-sdk on SQLite") if peers else ():
        if name.endswith("SQLite") and not importlib.util.find_spec("aiosqlite"):
            _console.print("a2a-sdk on SQLite is left out: it needs sqlalchemy and aiosqlite")
            continue
        _console.print(name)
        with TemporaryDirectory(prefix="everloop-bench-") as directory:
            database = str(Path(directory, "tasks.db")) if name.endswith("SQLite") else ""
            async with (
                running_peer(Path(directory), name, database) as side,
                httpx.AsyncClient(limits=limits, timeout=60) as http,
            ):
                await measure(side, http, idle=False)
                sides.append(side)
    with TemporaryDirectory(prefix="everloop-bench-") as directory:
        async with (
            running_everloop(Path(directory)) as (side, stack),
            httpx.AsyncClient(limits=limits, timeout=60) as http,
        ):
            async with running_floor(Path(directory), stack) as temporal:
                for iterations, name in enumerate(("Temporal, empty workflow", "Temporal, two activities")):
                    _console.print(name)
                    floor = Side(name, use=side.use)
                    await measure_floor(floor, temporal, iterations=iterations)
                    sides.append(floor)
            _console.print("Everloop")
            await measure(side, http, idle=idle)
            sides.append(side)
    table = Table("agent without a model")
    for side in sides:
        table.add_column(side.name, justify="right")
    for name in sides[-1].figures:
        table.add_row(name, *(side.figures.get(name, "") for side in sides))
    _console.print(table)


def main() -> int:
    """Measure, print the table, return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    arguments.add_argument("--alone", action="store_true", help="without a2a-sdk's servers")
    arguments.add_argument("--no-idle", action="store_true", help="without tasks that have been idle")
    chosen = arguments.parse_args()
    asyncio.run(_run(peers=not chosen.alone, idle=not chosen.no_idle))
    return 0


if __name__ == "__main__":
    leave(main())
