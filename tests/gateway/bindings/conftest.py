"""One gateway with two agents for all tests of bindings, and a client of each."""

from collections.abc import AsyncGenerator, Mapping

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.gateway.harness import AGENT, PromptModel, unheard
from tests.support.stores import redis_of
from tests.support.wires.wires import OVER_HTTP, HttpWire, Wire, all_wires

OTHER = Agent(id="other", name="Other", description="Stands beside the default one.", model="scripted")

session = pytest_asyncio.fixture(scope="session", loop_scope="session")


@session
async def served(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[GrpcGateway]:
    """A gateway on all bindings, with a worker; push notifications are stored and not sent."""
    async with running_grpc_gateway(
        client, views, queue=queue, agents=[AGENT, OTHER], push=unheard(PushConfigs(redis_of(views)))
    ) as gateway:
        yield gateway


@session
async def http(served: GrpcGateway) -> AsyncGenerator[httpx.AsyncClient]:
    """A client that sends no header of A2A by default."""
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
        yield http


@pytest.fixture(scope="session")
def wires(served: GrpcGateway, http: httpx.AsyncClient) -> Mapping[str, Wire]:
    return all_wires(http, served.channel)


@pytest.fixture(params=OVER_HTTP)
def over_http(request: pytest.FixtureRequest, wires: Mapping[str, Wire]) -> HttpWire:
    """Each binding over HTTP: each reads headers and bodies and writes errors in its own way."""
    wire = wires[request.param]
    assert isinstance(wire, HttpWire)
    return wire
