"""What a worker says that cannot begin."""

import asyncio

import pytest
from temporalio.client import Client

from everloop.runtime.temporal.connection import TemporalUnreachableError
from everloop.worker import WorkerSettings, running_workers
from tests.support.fakes.ports import TASK_WORK, FakePorts, ScriptedModel
from tests.workflows.conftest import unique_queue


async def test_a_worker_that_temporal_does_not_serve_says_why(client: Client) -> None:
    """Temporal is asked once more in the background; what comes of it is no defect of the worker."""
    config = client.config()
    config["namespace"] = "nowhere"
    settings = WorkerSettings(task_queue=unique_queue())
    with pytest.raises(TemporalUnreachableError, match="Start it again when Temporal answers for 'nowhere'"):
        async with running_workers(Client(**config), FakePorts(ScriptedModel()).wired(), settings, TASK_WORK):
            await asyncio.Event().wait()
