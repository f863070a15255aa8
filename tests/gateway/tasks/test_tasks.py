"""GetTask, ListTasks, CancelTask, and tasks that end without a word."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.tasks import TaskState as State
from everloop.workflows.contract.tasks import TaskStatus, TaskView
from tests.gateway.harness import (
    PromptModel,
    RunningGateway,
    StoodIn,
    running_gateway,
    stand_in_worker,
    unique,
)
from tests.support.a2a_client import Answer, connected, request, send


async def test_a_task_can_be_read_at_any_gateway(
    client: Client, views: TaskViews, queue: str, blocking: A2AClient
) -> None:
    """Gateways keep no tasks: one that never saw the message shows the same task."""
    sent = await send(blocking, request(unique("read")))
    async with running_gateway(client, views, queue=queue) as other, connected(other.url) as a2a:
        assert await a2a.get_task(GetTaskRequest(id=sent.id)) == sent


@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask", "SendMessage"])
async def test_a_task_of_somebody_else_is_not_found(
    gateway: RunningGateway, views: TaskViews, method: str
) -> None:
    """An owner's tasks are shown to nobody else, and the answer is that for a task that does not exist."""
    now, task_id = datetime.now(UTC), unique("theirs")
    theirs = TaskView(
        task_id=task_id,
        context_id="context",
        owner=unique("somebody"),
        agent_id="staged",
        created_at=now,
        status=TaskStatus(state=State.WORKING, at=now),
    )
    await views.create(theirs)
    message = {"messageId": unique("m"), "role": "ROLE_USER", "taskId": task_id, "parts": [{"text": "hi"}]}
    params = {"message": message} if method == "SendMessage" else {"id": task_id}

    response = await gateway.call(method, params)

    error = response.json()["error"]
    assert (error["code"], error["message"]) == (-32001, f"no task {task_id!r} here")


async def test_canceling_ends_the_task(blocking: A2AClient, model: PromptModel) -> None:
    """CancelTask returns the canceled task, and its workflow has ended so."""
    prompt = unique("cancel")
    model.scripts[prompt] = [asyncio.Event()]
    task = await send(blocking, request(prompt, return_immediately=True))

    canceled = await blocking.cancel_task(CancelTaskRequest(id=task.id))

    assert canceled.status.state == TaskState.TASK_STATE_CANCELED


async def test_an_ended_task_cannot_be_canceled(blocking: A2AClient) -> None:
    """A2A 1.0 §3.1.5; the error says what became of it."""
    task = await send(blocking, request(unique("done")))

    with pytest.raises(TaskNotCancelableError, match="is completed already"):
        await blocking.cancel_task(CancelTaskRequest(id=task.id))


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


async def test_lists_are_pages_of_the_newest_tasks_first(blocking: A2AClient) -> None:
    """Following the page tokens shows every task of a context once, newest status first."""
    context_id = unique("context")
    tasks = [await send(blocking, _in(context_id)) for _ in range(5)]
    pages: list[list[str]] = []
    query = ListTasksRequest(context_id=context_id, page_size=2)
    while True:
        page = await blocking.list_tasks(query)
        pages.append([task.id for task in page.tasks])
        assert (page.page_size, page.total_size) == (2, 5)
        if not page.next_page_token:
            break
        query.page_token = page.next_page_token

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [task_id for page in pages for task_id in page] == [task.id for task in reversed(tasks)]


async def test_lists_can_be_filtered(blocking: A2AClient, model: PromptModel) -> None:
    """By context, by state, and by the time of the last status."""
    context_id, prompt, gate = unique("context"), unique("open"), asyncio.Event()
    model.scripts[prompt] = [gate]
    done = await send(blocking, _in(context_id))
    running = request(prompt, return_immediately=True)
    running.message.context_id = context_id
    opened = await send(blocking, running)
    completed = ListTasksRequest(context_id=context_id, status=TaskState.TASK_STATE_COMPLETED)
    late = Timestamp()
    late.FromDatetime(datetime.now(UTC) + timedelta(hours=1))

    everything = await blocking.list_tasks(ListTasksRequest(context_id=context_id))
    in_state = await blocking.list_tasks(completed)
    later = await blocking.list_tasks(ListTasksRequest(context_id=context_id, status_timestamp_after=late))
    gate.set()

    assert {task.id for task in everything.tasks} == {done.id, opened.id}
    assert [task.id for task in in_state.tasks] == [done.id]
    assert list(later.tasks) == []


async def test_lists_show_artifacts_and_history_as_asked(
    blocking: A2AClient, gateway: RunningGateway
) -> None:
    """Artifacts are left out unless asked for, and then there is no such field (A2A 1.0 §3.1.4)."""
    context_id = unique("context")
    task = await send(blocking, _in(context_id))

    plain = await gateway.call("ListTasks", {"contextId": context_id})
    (full,) = (
        await blocking.list_tasks(ListTasksRequest(context_id=context_id, include_artifacts=True))
    ).tasks
    (short,) = (await blocking.list_tasks(ListTasksRequest(context_id=context_id, history_length=0))).tasks

    assert full == task
    assert not short.history
    assert "artifacts" not in plain.json()["result"]["tasks"][0]
    assert plain.json()["result"]["nextPageToken"] == ""


def _in(context_id: str) -> SendMessageRequest:
    message = request(unique("listed"))
    message.message.context_id = context_id
    return message
