"""Everything that is measured, each in a process of its own: Everloop, and the floors below it."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
from temporalio.client import Client

from bench.servers.peer_worker import READY
from bench.sides import Everloop, Peer, Side
from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.servers.processes import ServerProcess, wait_until_answers

AGENT = "bench.agent:agent"
MIB = 1024 * 1024
LIMITS = httpx.Limits(max_connections=200)


@dataclass(frozen=True)
class Stack:
    """Where everything answers. The gateway, the echo server and the HTTP client speak to each other."""

    deployment: Deployment
    temporal: Client
    http: httpx.AsyncClient
    gateway: Gateway
    echo_url: str
    model_url: str
    floor: Side
    naive: Side
    everloop: Side

    @property
    def sides(self) -> tuple[Side, Side, Side]:
        """Those that run tasks, in the order of the table's columns."""
        return self.floor, self.naive, self.everloop

    @property
    def redis_url(self) -> str:
        return self.deployment.redis_url

    @property
    def gateway_url(self) -> str:
        return self.gateway.url

    def memory(self) -> dict[str, float]:
        """Return the resident memory of our processes now, in MiB."""
        processes = {"worker": self.everloop.worker, "gateway": self.gateway.process}
        return {name: memory_of(process) for name, process in processes.items()}


def memory_of(process: ServerProcess) -> float:
    """Return the resident memory of a process, in MiB."""
    return psutil.Process(process.pid).memory_info().rss / MIB


def processor_ms(process: ServerProcess) -> float:
    """Return the processor time that a process has used since it was started, in milliseconds."""
    times = psutil.Process(process.pid).cpu_times()
    return (times.user + times.system) * 1000


@asynccontextmanager
async def running_stack(directory: Path, say: Callable[[str], None]) -> AsyncGenerator[Stack]:
    """Start all processes on free ports, with their data in `directory`; end them all."""
    ServerProcess.starts_copies = False
    async with AsyncExitStack() as started:
        model_port, echo_port = free_port(), free_port()
        for name, port in (("model", model_port), ("echo", echo_port)):
            say(f"starting {name}")
            await _run_module(started, directory, name, port)
        say("starting Temporal and Valkey")
        model_url = f"http://{LOOPBACK}:{model_port}/v1"
        deployment = await started.enter_async_context(running_deployment(directory, model_url, agents=AGENT))
        say("starting workers and gateway")
        temporal = await Client.connect(deployment.temporal_address, data_converter=WIRE_DATA_CONVERTER)
        bare = await Client.connect(deployment.temporal_address)
        stack = Stack(
            deployment=deployment,
            temporal=temporal,
            http=await started.enter_async_context(httpx.AsyncClient(limits=LIMITS, timeout=60)),
            gateway=await deployment.add_gateway(),
            model_url=model_url,
            echo_url=f"http://{LOOPBACK}:{echo_port}",
            floor=Peer(bare, "Floor", "ask", partial(_add_peer, deployment, "floor")),
            naive=Peer(bare, "Naive", "complete", partial(_add_peer, deployment, "naive")),
            everloop=Everloop(temporal, deployment.environment["EVERLOOP_TASK_QUEUE"], deployment.add_worker),
        )
        for side in stack.sides:
            await side.start_worker()
        yield stack


async def _add_peer(deployment: Deployment, name: str, queue: str) -> ServerProcess:
    log = deployment.directory / f"{name}-{len(deployment.started)}.log"
    process = ServerProcess(
        [sys.executable, "-m", "bench.servers.peer_worker", name],
        log,
        {**deployment.environment, "EVERLOOP_TASK_QUEUE": queue},
    )
    deployment.started.append(process)
    process.start()
    await wait_until_answers(process, lambda: _is_ready(process), name)
    return process


async def _run_module(started: AsyncExitStack, directory: Path, name: str, port: int) -> None:
    command = [sys.executable, "-m", f"bench.servers.{name}", str(port)]
    process = ServerProcess(command, directory / f"{name}.log")
    process.start()
    started.callback(process.stop)
    await wait_until_answers(process, lambda: _listens(port), name)


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
