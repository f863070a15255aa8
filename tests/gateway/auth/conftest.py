"""One cluster for all tests of permissions."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from temporalio.client import Client

from everloop.stores.log.log_store import TaskViews
from tests.gateway.auth.cluster import Cluster, running_cluster
from tests.support.wires.wires import NAMES, Wire


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(
    client: Client, views: TaskViews, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Cluster]:
    async with running_cluster(client, views, tmp_path_factory.mktemp("keys") / "keys") as cluster:
        yield cluster


@pytest.fixture(params=NAMES)
def wire(request: pytest.FixtureRequest, cluster: Cluster) -> Wire:
    """Each binding in each version: each finds the operation of a call in its own way."""
    return cluster.wires[request.param]
