"""A complete Everloop in separate processes: Temporal, Valkey, workers, gateways, all of them killable."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import uuid4

import httpx
from redis.client import NEVER_DECODE

from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis
from tests.support.seeded_secrets import MODEL_KEY
from tests.support.servers.processes import (
    ServerProcess,
    running_temporal,
    running_valkey,
    until,
    wait_until_answers,
)
from tests.support.servers.scripted_openai import Script, ScriptedOpenAI

RunningRedis = Callable[[Path], AbstractAsyncContextManager[tuple[ServerProcess, str]]]

ACCEPTANCE_AGENT = "tests.support.agents.acceptance:agent"


@dataclass(frozen=True)
class Gateway:
    """A gateway process and its address."""

    process: ServerProcess
    url: str


@dataclass
class Deployment:
    """The servers of one Everloop, and methods that add processes."""

    directory: Path
    temporal: ServerProcess
    temporal_address: str
    valkey: ServerProcess
    redis_url: str
    environment: dict[str, str]
    started: list[ServerProcess] = field(default_factory=list[ServerProcess])

    async def add_worker(self, *arguments: str, **settings: str) -> ServerProcess:
        """Start a worker with these settings, and wait until it is ready."""
        worker = self._process("worker", [sys.executable, "worker.py", *arguments], settings)
        worker.start()
        await wait_until_answers(worker, lambda: _says(worker, "worker ready"), "worker")
        return worker

    async def add_gateway(self, **settings: str) -> Gateway:
        """Start a gateway with these settings, and wait until it reaches its servers."""
        port = free_port()
        url = f"http://{LOOPBACK}:{port}"
        variables = {"EVERLOOP_PORT": str(port), "EVERLOOP_PUBLIC_URL": url, **settings}
        process = self._process("gateway", [sys.executable, "-m", "everloop.gateway"], variables)
        process.start()
        await wait_until_answers(process, lambda: _is_ready(url), "gateway")
        return Gateway(process, url)

    def logs(self) -> list[dict[str, object]]:
        """Return all JSON log lines of workers and gateways."""
        lines = [line for process in self.started for line in process.output.splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    async def until_logged(self, words: str) -> None:
        """Wait until a process has logged an event with these words."""
        await until(lambda: any(words in str(line.get("event")) for line in self.logs()))

    def _process(self, name: str, command: list[str], variables: dict[str, str]) -> ServerProcess:
        log = self.directory / f"{name}-{len(self.started)}.log"
        process = ServerProcess(command, log, {**self.environment, **variables})
        self.started.append(process)
        return process


@dataclass
class Service:
    """A deployment with one worker and one gateway, and their model; tests may share it."""

    model: ScriptedOpenAI
    everloop: Deployment
    gateway: Gateway
    worker: ServerProcess

    def script(self, script: Script) -> None:
        """Replace the model's script, and delete its recorded requests."""
        self.model.script = script
        self.model.requests.clear()

    def at(self, agent_id: str) -> str:
        """Return the address of an agent."""
        return f"{self.gateway.url}/agents/{agent_id}"

    async def replace_worker(self, **settings: str) -> None:
        """Kill the worker, and start another one."""
        self.worker.kill()
        self.worker = await self.everloop.add_worker(**settings)


@asynccontextmanager
async def running_service(
    directory: Path,
    agents: str = ACCEPTANCE_AGENT,
    running_redis: RunningRedis = running_valkey,
    /,
    **variables: str,
) -> AsyncGenerator[Service]:
    """Start a deployment of agents, with a worker and a gateway."""
    async with (
        ScriptedOpenAI() as model,
        running_deployment(directory, model.base_url, running_redis, agents=agents, **variables) as everloop,
    ):
        worker = await everloop.add_worker()
        yield Service(model, everloop, await everloop.add_gateway(), worker)


async def kept_by(everloop: Deployment) -> dict[str, object]:
    """Return all data in Redis and the blobs, without records of readers and live processes."""
    async with connect_redis(everloop.redis_url, NO_CIPHER) as redis:
        dump = cast("Callable[..., Awaitable[bytes]]", redis.execute_command)
        names = cast("list[str]", await redis.keys("everloop:*"))
        found: dict[str, object] = {
            name: await dump("DUMP", name, **{NEVER_DECODE: True}) for name in names if ":reader:" not in name
        }
    blobs = everloop.directory / "blobs"
    return found | {str(path): path.read_bytes() for path in blobs.rglob("*") if path.is_file()}


async def _says(process: ServerProcess, words: str) -> bool:
    return words in process.output


async def _is_ready(url: str) -> bool:
    async with httpx.AsyncClient() as client:
        try:
            return (await client.get(f"{url}/readyz")).is_success
        except httpx.TransportError:
            return False


@asynccontextmanager
async def running_deployment(
    directory: Path,
    model_url: str,
    running_redis: RunningRedis = running_valkey,
    /,
    *,
    agents: str = ACCEPTANCE_AGENT,
    temporal_settings: Sequence[str] = (),
    **variables: str,
) -> AsyncGenerator[Deployment]:
    """Start Temporal, with dynamic configuration, and Valkey; all added processes end with them."""
    for name in ("temporal", "valkey"):
        (directory / name).mkdir()
    async with (
        running_temporal(directory / "temporal", temporal_settings) as (temporal, address),
        running_redis(directory / "valkey") as (valkey, redis_url),
    ):
        environment = {
            "TEMPORAL_ADDRESS": address,
            "EVERLOOP_REDIS_URL": redis_url,
            "EVERLOOP_BLOB_DIRECTORY": str(directory / "blobs"),
            "EVERLOOP_AGENTS": agents,
            "EVERLOOP_TASK_QUEUE": f"tests-{uuid4()}",
            "EVERLOOP_SHUTDOWN_GRACE": "1",
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": MODEL_KEY,
            **variables,
        }
        deployment = Deployment(directory, temporal, address, valkey, redis_url, environment)
        try:
            yield deployment
        finally:
            for process in deployment.started:
                process.ask_to_stop()
            for process in deployment.started:
                process.stop()
