"""All measured processes: Everloop, and the floors below it, each in a process of its own."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
from temporalio.client import Client

from bench.servers.peer_worker import READY
from bench.sides import Everloop, Peer, Side
from everloop.local.servers import LOOPBACK, free_port
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.support.rigs.deployment import Deployment, Gateway, running_deployment
from tests.support.servers.processes import ServerProcess, wait_until_answers

AGENT = "bench.agent:agent"
MIB = 1024 * 1024
LIMITS = httpx.Limits(max_connections=200)


@dataclass(frozen=True)
class Stack:
    """Addresses of the processes. The gateway, the echo server and the HTTP client speak to each other."""

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
        """Sides that run tasks, in the order of the table's columns."""
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
            started.callback((await start_server(name, port, directory=directory)).stop)
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
    process = await start_peer(name, log, {**deployment.environment, "EVERLOOP_TASK_QUEUE": queue})
    deployment.started.append(process)
    return process


async def start_peer(name: str, log: Path, environment: dict[str, str]) -> ServerProcess:
    """Start a bare worker, and wait until it is ready."""

    async def is_ready() -> bool:
        return READY in process.output

    process = ServerProcess([sys.executable, "-m", "bench.servers.peer_worker", name], log, environment)
    return await _answering(process, is_ready, name)


async def start_server(name: str, port: int, *arguments: str, directory: Path) -> ServerProcess:
    """Start a server of `bench.servers`, and wait until it listens."""

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    command = [sys.executable, "-m", f"bench.servers.{name}", str(port), *arguments]
    return await _answering(ServerProcess(command, directory / f"{name}.log"), listens, name)


async def _answering(
    process: ServerProcess, answers: Callable[[], Awaitable[bool]], name: str
) -> ServerProcess:
    process.start()
    try:
        await wait_until_answers(process, answers, name)
    except BaseException:
        process.kill()
        raise
    return process
