"""A gateway and a worker in this process, on the session's servers, with their own settings."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis

from everloop.activities.model.clients import check_agents
from everloop.agents.agent import Agent
from everloop.agents.errors import AgentError
from everloop.agents.registry import AgentRegistry
from everloop.gateway.__main__ import opened_app
from everloop.gateway.http.server import GatewayServer, listen
from everloop.gateway.settings import GatewaySettings
from everloop.models.catalogue import Catalogue, ModelsSettings
from everloop.runtime.environment import PREFIX, StartError, explain
from everloop.testing.errors import AgentsError
from everloop.testing.model import StandIn
from everloop.testing.process import WorkerUnderTest, quiet_logs
from everloop.testing.shared_servers import DATABASES, SessionServers, session_servers
from everloop.worker import working
from everloop.workers.activity_queues import queues_named_by
from everloop.workers.settings import WorkerSettings
from everloop.workflows.contract import names

Worker = Literal["here", "process"]
"""Place of the worker: this process, for breakpoints, or its own, which can be killed."""

NOTHING_ELSE: Mapping[str, str] = {}

STOP_TIMEOUT = 15.0
"""Seconds for a worker and a gateway to stop; they need less than one."""

T = TypeVar("T")

_APPS = "everloop-testing:apps"
_WEBHOOKS = "127.0.0.0/8,::1,localhost"
_OTHERS = "TEMPORAL_"


@dataclass(frozen=True)
class Stack:
    """Processes and clients of one app."""

    url: str
    servers: SessionServers
    process: WorkerUnderTest | None


@asynccontextmanager
async def running_stack(
    agents: Sequence[Agent], model: StandIn | str | None, worker: Worker, settings: Mapping[str, str]
) -> AsyncGenerator[Stack]:
    """Start a gateway and a worker for these agents, and stop them at the end of the block.

    Raises:
        AgentsError: the agents or their settings are invalid.
        ServersError: the servers are not installed, or do not start.
        WorkerProcessError: the worker cannot run in its own process.
    """
    async with AsyncExitStack() as opened:
        opened.enter_context(quiet_logs())
        with _translate_start_errors():
            registry = AgentRegistry(agents)
            if registry.missed:
                raise AgentsError(f"{registry.missed[0]}: give running(…) that agent too")
            models = ModelsSettings()
            default = model if isinstance(model, str) else models.model
            catalogue = Catalogue.load(models.file, default, os.environ)
        if isinstance(model, StandIn):
            catalogue = await opened.enter_async_context(model.opened(catalogue))
        with _translate_start_errors():
            check_agents(catalogue, registry)
        servers = await session_servers()
        variables = {**await _variables(servers), **settings}
        async with _starting(variables):
            with _translate_start_errors():
                url = await opened.enter_async_context(_bounded(_gateway(registry), "gateway"))
                queues = (*names.WORKER_QUEUES, *sorted(queues_named_by(registry)))
                process = WorkerUnderTest(agents, queues, catalogue) if worker == "process" else None
                here = working(registry, queues, WorkerSettings(shutdown_grace=0), catalogue)
                await opened.enter_async_context(process.running() if process else _bounded(here, "worker"))
        yield Stack(url, servers, process)


@asynccontextmanager
async def _gateway(agents: AgentRegistry) -> AsyncGenerator[str]:
    async with AsyncExitStack() as opened:
        listener = opened.enter_context(listen(GatewaySettings()))
        settings = GatewaySettings(port=listener.getsockname()[1])
        app, _ = await opened.enter_async_context(opened_app(settings, agents))
        server = GatewayServer(app, settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield settings.url
        finally:
            server.stop()
            await serving


@asynccontextmanager
async def _bounded(context: AbstractAsyncContextManager[T], what: str) -> AsyncGenerator[T]:
    """Leave a context within a timeout: a hanging one would block the whole test session."""
    value = await context.__aenter__()
    try:
        yield value
    finally:
        leaving = asyncio.ensure_future(context.__aexit__(None, None, None))
        await asyncio.wait((leaving,), timeout=STOP_TIMEOUT)
        if leaving.done():
            leaving.result()
        else:
            leaving.cancel()
            _log.warning(f"the {what} did not stop in {STOP_TIMEOUT:g} s; the test goes on without it")


async def _variables(servers: SessionServers) -> dict[str, str]:
    """Return the settings of an app: its state is its own, though the servers are shared."""
    async with Redis.from_url(servers.redis) as redis:
        number = await redis.incr(_APPS)
    database = (number - 1) % (DATABASES - 1) + 1
    url = f"{servers.redis.rpartition('/')[0]}/{database}"
    if number > database:
        async with Redis.from_url(url) as redis:
            await redis.flushdb()
    return {
        "TEMPORAL_ADDRESS": servers.temporal,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "EVERLOOP_REDIS_URL": url,
        "EVERLOOP_BLOB_DIRECTORY": str(servers.directory / f"blobs-{number}"),
        "EVERLOOP_TASK_QUEUE": f"test-{number}",
        "EVERLOOP_PORT": "0",
        "EVERLOOP_SHUTDOWN_GRACE": "1",
        "EVERLOOP_PUSH_ALLOW": _WEBHOOKS,
    }


_log = structlog.get_logger()
_start = threading.Lock()


@asynccontextmanager
async def _starting(variables: Mapping[str, str]) -> AsyncGenerator[None]:
    """Replace the Everloop and Temporal variables of the environment while an app starts."""
    while not _start.acquire(blocking=False):  # noqa: ASYNC110 -- other threads share the environment
        await asyncio.sleep(0.01)
    try:
        before = {name: value for name, value in os.environ.items() if name.startswith((PREFIX, _OTHERS))}
        _replace(before, variables)
        try:
            yield
        finally:
            _replace(variables, before)
    finally:
        _start.release()


def _replace(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    for name in old:
        os.environ.pop(name, None)
    os.environ.update(new)


@contextmanager
def _translate_start_errors() -> Generator[None]:
    """Translate errors of agents and settings to errors of the test.

    Raises:
        AgentsError: an agent or a setting is invalid.
    """
    try:
        yield
    except StartError as error:
        hint = "; or let running(…, model=Script(…)) stand in for the model"
        raise AgentsError(f"{error}{hint if 'agent ' in str(error) else ''}") from None
    except AgentError as error:
        raise AgentsError(str(error)) from None
    except ValidationError as error:
        raise AgentsError(f"wrong setting: {explain(error)}") from None
