"""One stack with the conformance agent for all conformance tests, and a client for each binding."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.conformance.bindings import BINDINGS, Binding, opened
from tests.conformance.stack import Stack, running_stack
from tests.conformance.webhook import Webhook, running_webhook

session = pytest_asyncio.fixture(scope="session", loop_scope="session")


@session
async def stack(
    temporal_address: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stack]:
    directory = tmp_path_factory.mktemp("conformance")
    async with running_stack(directory, temporal_address, redis_url) as stack:
        yield stack


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=BINDINGS)
async def agent(stack: Stack, request: pytest.FixtureRequest) -> AsyncGenerator[Binding]:
    """The conformance agent, over each binding in turn."""
    async with opened(stack.url, stack.grpc_address, request.param) as binding:
        yield binding


@session
async def webhook() -> AsyncGenerator[Webhook]:
    async with running_webhook() as webhook:
        yield webhook
