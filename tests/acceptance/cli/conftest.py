"""One deployment for all tests of the command line, and a home of its own for each."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.acceptance.cli.terminal import Shell
from tests.support.rigs.deployment import ACCEPTANCE_AGENT, Service, running_service
from tests.support.rigs.people import PEOPLE_AGENT

ARTIFACT_AGENT = "tests.support.agents.artifacts:agent"
CLERK = "tests.support.agents.operator:agent"
AGENTS = f"{ACCEPTANCE_AGENT},{PEOPLE_AGENT},{ARTIFACT_AGENT},{CLERK}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    async with running_service(tmp_path_factory.mktemp("cli"), AGENTS) as running:
        yield running


@pytest.fixture
def service(_service: Service) -> Service:
    """The deployment, with an empty script."""
    _service.script(())
    return _service


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> Shell:
    """Where commands are run: an empty folder, and the gateway of the deployment as the profile."""
    return Shell(tmp_path, {"EVERLOOP_PROFILE": service.gateway.url})
