"""Everything that is measured, each in a process of its own: Everloop, and the floors below it."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
from temporalio.client import Client

from bench.servers.floor_worker import READY
from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.rigs.deployment import Deployment, running_deployment
from tests.support.servers.processes import ServerProcess, wait_until_answers

AGENT = "bench.agent:agent"
MIB = 1024 * 1024


@dataclass(frozen=True)
class Stack:
    """Where everything answers. The gateway, the echo server and the HTTP client speak to each other."""

    temporal: Client
    http: httpx.AsyncClient
    redis_url: str
    task_queue: str
    floor_queue: str
    gateway_url: str
    echo_url: str
    worker_pid: int
    gateway_pid: int

    def memory(self) -> dict[str, float]:
        """Return the resident memory of our processes now, in MiB."""
        pids = {"worker": self.worker_pid, "gateway": self.gateway_pid}
        return {name: psutil.Process(pid).memory_info().rss / MIB for name, pid in pids.items()}


@asynccontextmanager
async def running_stack(directory: Path, say: Callable[[str], None]) -> AsyncGenerator[Stack]:
    """Start all processes on free ports, with their data in `directory`; end them all."""
    async with AsyncExitStack() as started:
        model_port, echo_port = free_port(), free_port()
        for name, port in (("model", model_port), ("echo", echo_port)):
            say(f"starting {name}")
            await _run_module(started, directory, name, port)
        say("starting Temporal and Valkey")
        model_url = f"http://{LOOPBACK}:{model_port}/v1"
        deployment = await started.enter_async_context(running_deployment(directory, model_url, agents=AGENT))
        say("starting worker and gateway")
        worker, gateway = await deployment.add_worker(), await deployment.add_gateway()
        floor_queue = f"floor-{uuid4()}"
        await _run_floor_worker(started, deployment, floor_queue)
        limits = httpx.Limits(max_connections=200)
        http = await started.enter_async_context(httpx.AsyncClient(limits=limits, timeout=60))
        yield Stack(
            temporal=await Client.connect(deployment.temporal_address, data_converter=WIRE_DATA_CONVERTER),
            http=http,
            redis_url=deployment.redis_url,
            task_queue=deployment.environment["EVERLOOP_TASK_QUEUE"],
            floor_queue=floor_queue,
            gateway_url=gateway.url,
            echo_url=f"http://{LOOPBACK}:{echo_port}",
            worker_pid=worker.pid,
            gateway_pid=gateway.process.pid,
        )


async def _run_module(started: AsyncExitStack, directory: Path, name: str, port: int) -> None:
    command = [sys.executable, "-m", f"bench.servers.{name}", str(port)]
    process = ServerProcess(command, directory / f"{name}.log")
    process.start()
    started.callback(process.stop)
    await wait_until_answers(process, lambda: _listens(port), name)


async def _run_floor_worker(started: AsyncExitStack, deployment: Deployment, queue: str) -> None:
    process = ServerProcess(
        [sys.executable, "-m", "bench.servers.floor_worker"],
        deployment.directory / "floor_worker.log",
        {**deployment.environment, "EVERLOOP_TASK_QUEUE": queue},
    )
    process.start()
    started.callback(process.stop)
    await wait_until_answers(process, lambda: _is_ready(process), "floor worker")


async def _is_ready(process: ServerProcess) -> bool:
    return READY in process.output


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
