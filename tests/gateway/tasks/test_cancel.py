"""CancelTask, and tasks that end without a status."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, Task, TaskState
from a2a.utils.errors import TaskNotCancelableError
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import RunningGateway, StoodIn, running_gateway, stand_in_worker, unique
from tests.support.a2a_client import Answer, connected, request, send
from tests.support.servers.processes import running_valkey

CANCELED = TaskState.TASK_STATE_CANCELED


@asynccontextmanager
async def unattended(client: Client, views: TaskViews, queue: str) -> AsyncGenerator[A2AClient]:
    """Yield a client of a gateway without a worker."""
    async with (
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        yield a2a


async def submit(a2a: A2AClient) -> Task:
    return await send(a2a, request(unique("cancel"), return_immediately=True))


@pytest.mark.parametrize("is_lost", [False, True])
async def test_an_untaken_task_is_canceled_although_its_view_was_lost(
    tmp_path: Path, client: Client, *, is_lost: bool
) -> None:
    """Lost before the cancellation or after it: only its history has the result."""
    async with (
        running_valkey(tmp_path) as (_, url),
        connect_redis(url) as redis,
        unattended(client, TaskViews(redis), unique("lost")) as a2a,
    ):
        task = await submit(a2a)
        if is_lost:
            await redis.flushall()
        canceled = await a2a.cancel_task(CancelTaskRequest(id=task.id))
        if is_lost:
            await redis.flushall()
        shown = await a2a.get_task(GetTaskRequest(id=task.id))
    assert canceled.status.state == CANCELED
    assert shown == canceled
    assert shown.history == task.history


async def test_a_task_that_a_worker_has_taken_is_not_called_canceled_before_it_is(
    client: Client, views: TaskViews
) -> None:
    """A worker began it without a status: the gateway cannot predict its end, and does not guess."""
    queue = unique("silent")
    async with unattended(client, views, queue) as a2a:
        task = await submit(a2a)
        async with stand_in_worker(client, queue):
            await StoodIn(client, views, task).messages()  # its first step is done
        shown = await a2a.cancel_task(CancelTaskRequest(id=task.id))
    assert shown.status.state == TaskState.TASK_STATE_SUBMITTED


async def test_a_task_whose_workflow_has_ended_cannot_be_canceled(
    stand_in: RunningGateway, client: Client
) -> None:
    """The workflow decides, also if the view has not got the end."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, request(unique("ended"), return_immediately=True))
        await client.get_workflow_handle(task.id).terminate()
        with pytest.raises(TaskNotCancelableError, match="is failed already"):
            await a2a.cancel_task(CancelTaskRequest(id=task.id))


async def test_a_task_that_ends_otherwise_was_not_canceled(client: Client, views: TaskViews) -> None:
    """If the answer was quicker than the cancellation, CancelTask says so."""
    queue = unique("quick")
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(unique("quick"), return_immediately=True))
        canceling = asyncio.create_task(a2a.cancel_task(CancelTaskRequest(id=task.id)))
        while not gateway.fanout.subscribed_tasks:  # noqa: ASYNC110 -- a fact of another task, no event
            await asyncio.sleep(0)
        await StoodIn(client, views, task).publish(State.COMPLETED)
        with pytest.raises(TaskNotCancelableError, match="is completed already"):
            await canceling


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ("terminate", TaskState.TASK_STATE_FAILED, "the task was terminated"),
        ("cancel", TaskState.TASK_STATE_CANCELED, "the task was canceled"),
    ],
)
async def test_a_task_that_ends_without_a_word_keeps_nobody_waiting(
    client: Client, views: TaskViews, end: str, state: int, reason: str
) -> None:
    """An operator terminated the workflow in the Temporal UI: streams end with the reason."""
    queue = unique("silent")
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue, fanout=EventFanout(views, idle_check=0.05)) as gateway,
        connected(gateway.url) as a2a,
    ):
        stream = a2a.send_message(request(unique("silent")))
        follower = Answer()
        follower.add(await anext(stream))
        handle = client.get_workflow_handle(follower.task_id)
        await (handle.terminate() if end == "terminate" else handle.cancel())
        await follower.read(stream)
    assert follower.states[-1] == state
    assert follower.responses[-1].status_update.status.message.parts[0].text == reason
