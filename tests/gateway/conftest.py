"""One worker with a scripted model, one with the stand-in, and a gateway for each, for all gateway tests."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from temporalio.client import Client

from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER
from tests.gateway.downloads.site import FailingArtifacts, Site
from tests.gateway.harness import (
    PromptModel,
    RunningGateway,
    running_gateway,
    scripted_worker,
    stand_in_worker,
    unique,
)
from tests.support.a2a_client import connected

session = pytest_asyncio.fixture(scope="session", loop_scope="session")


@session
async def client(temporal_address: str) -> Client:
    return await Client.connect(temporal_address, data_converter=WIRE_DATA_CONVERTER)


@session
async def views(redis_url: str) -> AsyncGenerator[TaskViews]:
    async with connect_redis(redis_url) as redis:
        yield TaskViews(redis)


@pytest.fixture(scope="session")
def queue() -> str:
    return unique("gateway")


@session
async def model(client: Client, views: TaskViews, queue: str) -> AsyncGenerator[PromptModel]:
    async with scripted_worker(client, views, queue) as model:
        yield model


@session
async def gateway(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(client, views, queue=queue) as gateway:
        yield gateway


@session
async def a2a(gateway: RunningGateway) -> AsyncGenerator[A2AClient]:
    async with connected(gateway.url) as a2a:
        yield a2a


@session
async def blocking(gateway: RunningGateway) -> AsyncGenerator[A2AClient]:
    async with connected(gateway.url, streaming=False) as a2a:
        yield a2a


@session
async def stand_in(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway whose tasks do nothing by themselves (`StandInTask`)."""
    queue = unique("stand-in")
    async with stand_in_worker(client, queue), running_gateway(client, views, queue=queue) as gateway:
        yield gateway


@session
async def serving(client: Client, views: TaskViews) -> AsyncGenerator[RunningGateway]:
    """A gateway that starts no tasks, for downloads."""
    async with running_gateway(client, views, queue="none", artifacts=FailingArtifacts(views)) as gateway:
        yield gateway


@pytest.fixture
def site(serving: RunningGateway) -> Site:
    """A gateway with a context of the test's own; its artifacts do not fail yet."""
    artifacts = serving.artifacts
    assert isinstance(artifacts, FailingArtifacts)
    artifacts.failure = artifacts.url = None
    artifacts.pieces, artifacts.replaced, artifacts.ends_early = 1, [], False
    return Site(serving, artifacts, unique("of / context"))
