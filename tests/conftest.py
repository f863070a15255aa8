"""One Temporal dev server and one Valkey for a whole test run; tests share them by unique ids."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.processes import running_temporal, running_valkey


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with running_valkey(tmp_path_factory.mktemp("valkey")) as (_, url):
        yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with running_temporal(tmp_path_factory.mktemp("temporal")) as (_, address):
        yield address
