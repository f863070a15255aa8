"""The real stack with the conformance agent: Temporal, Valkey, and processes of a worker and a gateway."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx

from everloop.local.servers import LOOPBACK, free_port
from tests.support.servers.processes import ServerProcess, wait_until_answers

AGENT = "everloop.examples.conformance_agent:agent"

STREAMING_TIMEOUT = "1"
"""Seconds; a task that lasts takes twice as long."""


@dataclass(frozen=True)
class Stack:
    """The address of the gateway, and clients. `http` sends no header of A2A by default."""

    url: str
    grpc_address: str
    http: httpx.AsyncClient


@asynccontextmanager
async def running_stack(
    directory: Path, temporal_address: str, redis_url: str, **variables: str
) -> AsyncGenerator[Stack]:
    """Start a worker and a gateway as `make conformance` sets them up, and end them."""
    port, grpc_port = free_port(), free_port()
    url = f"http://{LOOPBACK}:{port}"
    environment = {
        "TEMPORAL_ADDRESS": temporal_address,
        "TCK_STREAMING_TIMEOUT": STREAMING_TIMEOUT,
        "OPENAI_API_KEY": "none",  # no server is queried
        "EVERLOOP_AGENTS": AGENT,
        "EVERLOOP_REDIS_URL": redis_url,
        "EVERLOOP_TASK_QUEUE": f"conformance-{uuid4()}",
        "EVERLOOP_PORT": str(port),
        "EVERLOOP_PUBLIC_URL": url,
        "EVERLOOP_GRPC_PORT": str(grpc_port),
        "EVERLOOP_PUSH_ALLOW": f"{LOOPBACK},example.com",
        "EVERLOOP_SHUTDOWN_GRACE": "1",
        **variables,
    }
    worker = ServerProcess([sys.executable, "worker.py"], directory / "worker.log", environment)
    gateway = ServerProcess(
        [sys.executable, "-m", "everloop.gateway"], directory / "gateway.log", environment
    )
    started: list[ServerProcess] = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        try:
            for process in (worker, gateway):
                process.start()
                started.append(process)
            await wait_until_answers(worker, lambda: _says(worker, "worker ready"), "worker")
            await wait_until_answers(gateway, lambda: _is_ready(http), "gateway")
            yield Stack(url, f"{LOOPBACK}:{grpc_port}", http)
        finally:
            for process in started:
                process.stop()


async def _says(process: ServerProcess, words: str) -> bool:
    return words in process.output


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).is_success
    except httpx.TransportError:
        return False
