"""Costs of a task in Temporal, Redis, the blob store, and processor time: `python -m bench.costs`.

Each shape of task runs a few times, one after the other. Counts and bytes do not depend on the machine;
processor seconds do, though little on other load. Then tasks are parked, and streams opened, to measure
their memory.
"""

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import orjson
from redis.asyncio import Redis
from temporalio.client import Client

from bench.costs.history import Weight, weigh
from bench.costs.stores import Stores
from bench.costs.table import Cost, cost_table
from bench.orders import RESULT_BYTES, Order
from bench.report import WIDTH, console, leave
from bench.runs import message_of, result_of
from bench.stack import memory_of, processor_ms, start_server
from everloop.local.servers import LOOPBACK, free_port
from tests.support.rigs.deployment import running_deployment
from tests.support.servers.processes import ServerProcess
from tests.support.servers.webhook import Webhook, running_webhook

AGENTS = "bench.costs.agent:agents"
REPEATS = 10
WARM_UP = 100
PARKED = 400
STREAMS = 600
AT_ONCE = 5
BUSY = 120
TOGETHER = 12
HEARTBEATS = 'temporal_request_total{.*operation="RecordActivityTaskHeartbeat".*} (.+)'

_console = console(WIDTH + 40)


@dataclass(frozen=True)
class Shape:
    """A kind of task. `order` controls the model, `is_pushed`: its client is notified."""

    name: str
    order: Order
    is_pushed: bool = False
    is_left_open: bool = False
    is_slow: bool = False


ANSWER: Order = {"answer": 200}
WRITE = orjson.dumps(ANSWER).decode()
QUESTION = Shape("a question, open", {**ANSWER, "asks": True}, is_left_open=True)
SHAPES = (
    Shape("an answer", ANSWER),
    Shape("4 tools of 2 KB, answer", {**ANSWER, "iterations": 4, "size": RESULT_BYTES}),
    Shape(
        "the same, quick tools",
        {**ANSWER, "iterations": 4, "size": RESULT_BYTES, "tool": "produce_quickly"},
    ),
    Shape("a file of 1 MB, answer", {**ANSWER, "megabytes": 1}),
    Shape("an answer, with push", ANSWER, is_pushed=True),
    QUESTION,
    Shape("a question, answered", QUESTION.order),
    Shape("a sub-agent", {**ANSWER, "iterations": 1, "tool": "writer", "arguments": {"request": WRITE}}),
    Shape(
        "a tool of 10 s",
        {**ANSWER, "iterations": 1, "tool": "wait", "arguments": {"seconds": 10}},
        is_slow=True,
    ),
)


@dataclass(frozen=True)
class Bench:
    """State of the measurements."""

    worker: ServerProcess
    gateway: ServerProcess
    gateway_url: str
    metrics_url: str
    http: httpx.AsyncClient
    temporal: Client
    stores: Stores
    hook: Webhook

    async def run(self, shape: Shape) -> str:
        """Run a task of this shape to its end, or until it asks; return its id."""
        asked = message_of(shape.order)
        if shape.is_pushed:
            asked["configuration"] = {"taskPushNotificationConfig": {"url": self.hook.url}}
        task = await self._sent(asked)
        if task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED" and not shape.is_left_open:
            task = await self._sent(message_of("red", task["id"]))
        expected = "INPUT_REQUIRED" if shape.is_left_open else "COMPLETED"
        assert task["status"]["state"].endswith(expected), task
        return task["id"]

    async def _sent(self, asked: dict[str, Any]) -> dict[str, Any]:
        return (await result_of(self.http, self.gateway_url, "SendMessage", asked))["task"]

    async def cost(self, shape: Shape, repeats: int) -> Cost:
        """Run a shape several times, and return the cost of one task."""
        await weigh(self.temporal, await self.run(shape), is_open=shape.is_left_open)
        beats, stores = await self._heartbeats(), await self.stores.use()
        before = processor_ms(self.worker), processor_ms(self.gateway)
        weight = Weight()
        for _ in range(repeats):
            weight = await weigh(self.temporal, await self.run(shape), is_open=shape.is_left_open)
        after = processor_ms(self.worker), processor_ms(self.gateway)
        worker_ms, gateway_ms = ((late - early) / repeats for early, late in zip(before, after, strict=True))
        used = (await self.stores.use()).since(stores, repeats)
        return Cost(weight, (await self._heartbeats() - beats) / repeats, used, worker_ms, gateway_ms)

    async def _heartbeats(self) -> float:
        text = (await self.http.get(self.metrics_url)).text
        return sum(float(value) for value in re.findall(HEARTBEATS, text))

    async def busy_processors(self, shape: Shape) -> dict[str, float]:
        """Return the processor milliseconds of a task while several run at once."""
        early, before = (
            (await self.stores.use()).redis_ms,
            (processor_ms(self.worker), processor_ms(self.gateway)),
        )
        for _ in range(BUSY // TOGETHER):
            await asyncio.gather(*(self.run(shape) for _ in range(TOGETHER)))
        worker, gateway = processor_ms(self.worker) - before[0], processor_ms(self.gateway) - before[1]
        redis = (await self.stores.use()).redis_ms - early
        sums = {"Redis": redis, "worker": worker, "gateway": gateway}
        return {name: milliseconds / BUSY for name, milliseconds in sums.items()}

    async def parked_memory(self) -> float:
        """Return the worker memory, in KiB, of a task that waits for its user."""
        await self._park(WARM_UP)
        before = memory_of(self.worker)
        await self._park(PARKED)
        return (memory_of(self.worker) - before) * 1024 / PARKED

    async def _park(self, count: int) -> None:
        for _ in range(count // AT_ONCE):
            await asyncio.gather(*(self.run(QUESTION) for _ in range(AT_ONCE)))

    async def stream_memory(self) -> float:
        """Return the gateway memory, in KiB, of a subscriber with its own connection.

        Call it first: later the gateway has memory that it used and keeps.
        """
        task_id = await self.run(QUESTION)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        limits, headers = httpx.Limits(max_connections=None), {"A2A-Version": "1.0"}
        async with (
            httpx.AsyncClient(timeout=60, limits=limits, headers=headers) as http,
            AsyncExitStack() as opened,
        ):
            before, lines = 0.0, list[AsyncIterator[str]]()
            for number in range(WARM_UP + STREAMS):
                if number == WARM_UP:
                    before = memory_of(self.gateway)
                stream = http.stream("POST", self.gateway_url, json=body)
                answer = await opened.enter_async_context(stream)
                assert answer.headers["content-type"].startswith("text/event-stream"), await answer.aread()
                lines.append(answer.aiter_lines())
                await anext(lines[-1])
            return (memory_of(self.gateway) - before) * 1024 / STREAMS


@asynccontextmanager
async def running_bench(directory: Path) -> AsyncGenerator[Bench]:
    """Start a worker with metrics, a gateway, and the servers that they need."""
    ServerProcess.starts_copies = False
    address, port = f"{LOOPBACK}:{free_port()}", free_port()
    async with AsyncExitStack() as opened:
        opened.callback((await start_server("model", port, directory=directory)).stop)
        model = f"http://{LOOPBACK}:{port}/v1"
        deployed = running_deployment(directory, model, agents=AGENTS, EVERLOOP_PUSH_ALLOW="127.0.0.0/8")
        everloop = await opened.enter_async_context(deployed)
        everloop.environment["EVERLOOP_METRICS_ADDRESS"] = address
        worker = await everloop.add_worker()
        everloop.environment["EVERLOOP_METRICS_ADDRESS"] = ""
        gateway = await everloop.add_gateway()
        redis = await opened.enter_async_context(Redis.from_url(everloop.redis_url))
        yield Bench(
            worker,
            gateway.process,
            gateway.url,
            f"http://{address}/metrics",
            await opened.enter_async_context(httpx.AsyncClient(timeout=60)),
            await Client.connect(everloop.temporal_address),
            Stores(redis, Path(everloop.environment["EVERLOOP_BLOB_DIRECTORY"])),
            await opened.enter_async_context(running_webhook()),
        )


async def _run(repeats: int) -> None:
    with TemporaryDirectory(prefix="everloop-costs-") as name:
        async with asyncio.timeout(900), running_bench(Path(name)) as bench:
            _console.print(f"gateway, a subscriber: {await bench.stream_memory():.0f} KiB")
            costs: dict[str, Cost] = {}
            for shape in SHAPES:
                _console.print(shape.name)
                costs[shape.name] = await bench.cost(shape, 2 if shape.is_slow else repeats)
            _console.print(cost_table(costs))
            for shape in SHAPES[:3]:
                used = await bench.busy_processors(shape)
                told = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in used.items())
                _console.print(f"{shape.name}, {TOGETHER} at once: {told}")
            _console.print(f"worker, a task that waits for its user: {await bench.parked_memory():.0f} KiB")


def main() -> int:
    """Measure, print the table, return the exit code."""
    arguments = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__)
    arguments.add_argument(
        "--repeats", type=int, default=REPEATS, help="tasks of each shape (default %(default)s)"
    )
    asyncio.run(_run(arguments.parse_args().repeats))
    return 0


if __name__ == "__main__":
    leave(main())
