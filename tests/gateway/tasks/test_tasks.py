"""GetTask, ListTasks, CancelTask, and tasks that end without a word."""

import asyncio

import pytest
from a2a.types.a2a_pb2 import CancelTaskRequest, TaskState
from a2a.utils.errors import TaskNotCancelableError
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import RunningGateway, StoodIn, running_gateway, stand_in_worker, unique
from tests.support.a2a_client import Answer, connected, request, send


async def test_a_task_whose_workflow_has_ended_cannot_be_canceled(
    stand_in: RunningGateway, client: Client
) -> None:
    """The workflow has the last word, also where the view never heard of the end."""
    async with connected(stand_in.url, streaming=False) as a2a:
        task = await send(a2a, request(unique("ended"), return_immediately=True))
        await client.get_workflow_handle(task.id).terminate()
        with pytest.raises(TaskNotCancelableError, match="is failed already"):
            await a2a.cancel_task(CancelTaskRequest(id=task.id))


async def test_a_task_that_ends_otherwise_was_not_canceled(client: Client, views: TaskViews) -> None:
    """Where the answer was quicker than the cancellation, CancelTask says so."""
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
        ("terminate", TaskState.TASK_STATE_FAILED, "an operator terminated the task"),
        ("cancel", TaskState.TASK_STATE_CANCELED, "the task was canceled"),
    ],
)
async def test_a_task_that_ends_without_a_word_keeps_nobody_waiting(
    client: Client, views: TaskViews, end: str, state: int, reason: str
) -> None:
    """A workflow that an operator ended in the Temporal UI ends its followers' streams, with a reason."""
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
