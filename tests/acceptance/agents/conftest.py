"""One deployment for all tests of agents that work together; they kill its workers."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.rigs.deployment import Service, running_service

AGENTS = "tests.support.agents.sub_agents:agents"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def agents(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    async with running_service(tmp_path_factory.mktemp("agents"), AGENTS) as running:
        yield running
