"""Fixtures of acceptance tests: tests that break nothing share one deployment, others have their own."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.artifacts import ARTIFACT_AGENT
from tests.support.rigs.deployment import (
    ACCEPTANCE_AGENT,
    Deployment,
    Service,
    running_deployment,
    running_service,
)
from tests.support.rigs.people import PEOPLE_AGENT
from tests.support.seeded_secrets import LogSearch
from tests.support.servers.scripted_openai import ScriptedOpenAI

SUB_AGENTS = "tests.support.agents.sub_agents:agents"
CLERK = "tests.support.agents.operator:agent"
AGENTS = f"{ACCEPTANCE_AGENT},{PEOPLE_AGENT},{ARTIFACT_AGENT},{SUB_AGENTS},{CLERK}"


@pytest.fixture(scope="session")
def log_search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogSearch]:
    """All logs of workers and gateways of this run.

    Searched for the last time when the shared processes have ended.
    """
    search = LogSearch(tmp_path_factory.getbasetemp())
    yield search
    assert search.leaks() == []


@pytest.fixture(autouse=True)
def logs_without_content(log_search: LogSearch) -> Iterator[None]:
    """Search the logs of a test for the content of all tests until now, and for their secrets.

    As the first fixture it ends last: the processes that a test has started for itself have ended by then.
    """
    yield
    assert log_search.leaks() == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _service(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    async with running_service(tmp_path_factory.mktemp("service"), AGENTS) as running:
        yield running


@pytest.fixture
def service(_service: Service) -> Service:
    """A deployment of agents that use tools and agents, ask people, and write; with an empty script."""
    _service.script(())
    return _service


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A file for the effects of tools."""
    return tmp_path / "ledger"


@pytest_asyncio.fixture
async def model() -> AsyncGenerator[ScriptedOpenAI]:
    async with ScriptedOpenAI() as running:
        yield running


@pytest_asyncio.fixture
async def everloop(tmp_path: Path, model: ScriptedOpenAI) -> AsyncGenerator[Deployment]:
    async with running_deployment(tmp_path, model.base_url) as running:
        yield running
