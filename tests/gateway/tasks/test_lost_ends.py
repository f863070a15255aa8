"""Ends whose last status was lost: read from the workflow if only it has them."""

import asyncio
from contextlib import nullcontext, suppress

import pytest
from a2a.types.a2a_pb2 import Task
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.errors import GatewayError, NoWorkerError, PayloadLostError, PayloadsUnavailableError
from everloop.gateway.tasks.reconcile import Reconciler
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.blobs import BlobError, BlobMissingError, BlobsUnavailableError
from everloop.runtime.temporal.blob_payloads import THRESHOLD, data_converter
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.messages import TextPart
from everloop.workflows.contract.tasks import TaskState as State
from everloop.workflows.contract.tasks import TaskStatus
from tests.gateway.harness import running_gateway, scripted_worker, unique
from tests.gateway.tasks.silent_tasks import (
    NAMED,
    UNNAMED,
    defective_worker,
    services,
    start,
    until_closed,
    view_of,
)
from tests.support.a2a_client import connected, request, send
from tests.support.stores import database, redis_of


async def said_nothing(views: TaskViews, task: Task) -> TaskViews:
    """Return a store with a task's beginning, and nothing since."""
    others, view = TaskViews(database()), await view_of(views, task.id)
    begun = TaskStatus(state=State.WORKING, at=view.created_at)
    await others.restore(view.model_copy(update={"version": 1, "status": begun, "artifacts": ()}))
    return others


async def reconciled(reconciler: Reconciler, task_id: str) -> bool:
    """Reconcile, and retry without an answer, as gateways do: a worker that has just started may be late."""
    while True:
        with suppress(NoWorkerError):
            return await reconciler.reconcile(task_id)
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("redis")
async def test_an_answer_is_waited_for(client: Client, views: TaskViews) -> None:
    """The last status of a completed task was lost: without a worker only its workflow has the answer."""
    queue, prompt = unique("answered"), unique("answer")
    async with (
        scripted_worker(client, views, queue),
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(prompt))
        await client.get_workflow_handle(task.id).result()  # a client is answered before it is over
    others = await said_nothing(views, task)
    reconciler = services(client, others, queue=queue).reconciler
    with pytest.raises(NoWorkerError):
        await reconciler.reconcile(task.id)
    waiting = await others.state(task.id)
    async with scripted_worker(client, views, queue):
        await reconciled(reconciler, task.id)
    assert waiting is State.WORKING
    shown = await view_of(others, task.id)
    assert (shown.status.state, shown.artifacts[0].parts) == (State.COMPLETED, (TextPart(text=prompt),))


@pytest.mark.parametrize("prompt", [NAMED, UNNAMED])
async def test_a_named_failure_is_left_to_the_workflow(client: Client, views: TaskViews, prompt: str) -> None:
    """Without a worker the gateway reports a failure only if the workflow could not say more."""
    queue = unique("failed")
    task_id = await start(client, views, queue, prompt)
    async with defective_worker(client, queue):
        await until_closed(client, task_id)
    reconciler = services(client, views, queue=queue).reconciler
    if prompt == NAMED:
        with pytest.raises(NoWorkerError):
            await reconciler.reconcile(task_id)
        assert await views.state(task_id) is State.SUBMITTED
    async with nullcontext() if prompt == UNNAMED else defective_worker(client, queue):
        await reconciled(reconciler, task_id)
    assert await views.state(task_id) is State.FAILED


class UnreadableBlobs(RedisBlobs):
    """A store that a gateway cannot read."""

    def __init__(self, redis: Redis, failure: type[BlobError]) -> None:
        super().__init__(redis)
        self._failure = failure

    async def get(self, key: str) -> bytes:
        raise (
            BlobMissingError(key) if self._failure is BlobMissingError else BlobsUnavailableError("", "away")
        )


@pytest.mark.parametrize(
    ("failure", "told"),
    [(BlobMissingError, PayloadLostError), (BlobsUnavailableError, PayloadsUnavailableError)],
)
async def test_a_task_whose_payloads_cannot_be_read_is_settled(
    temporal_address: str, views: TaskViews, failure: type[BlobError], told: type[GatewayError]
) -> None:
    """Its view is a lost or unavailable blob: the state in Temporal is reported."""
    queue, redis = unique("large"), redis_of(views)
    client, blind = [
        await Client.connect(temporal_address, data_converter=data_converter(each))
        for each in (RedisBlobs(redis), UnreadableBlobs(redis, failure))
    ]
    async with defective_worker(client, queue):
        task_id = await start(client, views, queue, "x" * THRESHOLD)
        with pytest.raises(told):
            await Tasks(blind, queue).view(task_id)
        with pytest.raises(told):
            await Tasks(blind, queue).beginning(task_id)
        await client.get_workflow_handle(task_id).terminate()
        await services(blind, views, queue=queue).reconciler.reconcile(task_id)
    assert await views.state(task_id) is State.FAILED
