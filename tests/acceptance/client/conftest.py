"""One deployment for all tests of the client: agents that use tools and agents, ask people, write."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service, running_service
from tests.support.rigs.people import PEOPLE_AGENT

ARTIFACT_AGENT = "tests.support.agents.artifacts:agent"
SUB_AGENTS = "tests.support.agents.sub_agents:agents"
AGENTS = f"{ACCEPTANCE_AGENT},{PEOPLE_AGENT},{ARTIFACT_AGENT},{SUB_AGENTS}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    async with running_service(tmp_path_factory.mktemp("client"), AGENTS) as running:
        yield running


@pytest.fixture
def service(_service: Service) -> Service:
    """The deployment, with an empty script."""
    _service.script(())
    return _service
