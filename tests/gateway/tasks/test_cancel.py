"""CancelTask where nobody works on the task, and CancelTask again."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest, Task, TaskState
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from everloop.runtime.redis import connect_redis
from everloop.stores.views.interface import TaskViews
from everloop.stores.views.redis import RedisTaskViews
from tests.gateway.harness import StoodIn, running_gateway, scripted_worker, stand_in_worker, unique
from tests.support.a2a_client import Answer, connected, request, send
from tests.support.servers.processes import running_valkey

CANCELED = TaskState.TASK_STATE_CANCELED


@asynccontextmanager
async def unattended(
    client: Client, views: TaskViews, queue: str
) -> AsyncGenerator[tuple[A2AClient, A2AClient]]:
    """Yield a blocking and a streaming client of a gateway whose tasks nobody works on."""
    async with (
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as blocking,
        connected(gateway.url) as streaming,
    ):
        yield blocking, streaming


async def submit(a2a: A2AClient) -> Task:
    return await send(a2a, request(unique("cancel"), return_immediately=True))


async def test_a_task_that_no_worker_has_taken_is_canceled_at_once(client: Client, views: TaskViews) -> None:
    """The client hears so, a follower too, and the worker that comes ends it without working on it."""
    queue = unique("nobody")
    async with unattended(client, views, queue) as (a2a, streaming):
        task = await submit(a2a)
        stream = streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        followed = Answer()
        followed.add(await anext(stream))
        canceled = await a2a.cancel_task(CancelTaskRequest(id=task.id))
        await followed.read(stream)
        async with scripted_worker(client, views, queue) as model:
            with pytest.raises(WorkflowFailureError):
                await client.get_workflow_handle(task.id).result()
        shown = await a2a.get_task(GetTaskRequest(id=task.id))
    assert canceled.status.state == shown.status.state == followed.states[-1] == CANCELED
    assert canceled.status.message.parts[0].text == "canceled before a worker took it"
    assert model.calls == []
    handle = client.get_workflow_handle(task.id)
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
    assert await _activities(client, task.id) == ["publish"]


async def _activities(client: Client, task_id: str) -> list[str]:
    events = (await client.get_workflow_handle(task_id).fetch_history()).events
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


async def test_an_untaken_task_is_canceled_although_its_view_was_lost(tmp_path: Path, client: Client) -> None:
    """Before the cancellation or after it: its history alone tells what became of it."""
    async with (
        running_valkey(tmp_path) as (_, url),
        connect_redis(url) as redis,
        unattended(client, RedisTaskViews(redis), unique("lost")) as (a2a, _),
    ):
        task = await submit(a2a)
        await redis.flushall()
        canceled = await a2a.cancel_task(CancelTaskRequest(id=task.id))
        await redis.flushall()
        shown = await a2a.get_task(GetTaskRequest(id=task.id))
    assert canceled.status.state == CANCELED
    assert shown == canceled
    assert shown.history == task.history


async def test_a_task_that_a_worker_has_taken_is_not_called_canceled_before_it_is(
    client: Client, views: TaskViews
) -> None:
    """A worker began it and said nothing yet: the gateway cannot know how it ends, and does not guess."""
    queue = unique("silent")
    async with unattended(client, views, queue) as (a2a, _):
        task = await submit(a2a)
        async with stand_in_worker(client, queue):
            await StoodIn(client, views, task).messages()  # its first step is done
        shown = await a2a.cancel_task(CancelTaskRequest(id=task.id))
    assert shown.status.state == TaskState.TASK_STATE_SUBMITTED
