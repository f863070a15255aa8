"""One stack with the conformance agent for all conformance tests, and a client for each binding."""

from collections.abc import AsyncGenerator

import grpc
import httpx
import pytest
import pytest_asyncio

from tests.conformance.stack import Stack, running_stack
from tests.support.wires.agent import Agent
from tests.support.wires.wires import NAMES, all_wires, each

session = pytest_asyncio.fixture(scope="session", loop_scope="session")


@session
async def stack(
    temporal_address: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stack]:
    directory = tmp_path_factory.mktemp("conformance")
    async with running_stack(directory, temporal_address, redis_url) as stack:
        yield stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agents(stack: Stack) -> AsyncGenerator[dict[str, Agent]]:
    """The conformance agent, over each binding of 1.0."""
    async with (
        httpx.AsyncClient(base_url=stack.url, timeout=60) as http,
        grpc.aio.insecure_channel(stack.grpc_address) as channel,
    ):
        yield {name: Agent(wire) for name, wire in all_wires(http, channel).items()}


@pytest.fixture(scope="session", params=each(NAMES[:3]))
def agent(agents: dict[str, Agent], request: pytest.FixtureRequest) -> Agent:
    """Over each binding of 1.0 in turn: JSON-RPC in the gate, the others in `make test-all`."""
    return agents[request.param]


@pytest.fixture(scope="session", params=NAMES[:3])
def each_agent(agents: dict[str, Agent], request: pytest.FixtureRequest) -> Agent:
    """Over each binding of 1.0, for requirements on the form of each binding."""
    return agents[request.param]
