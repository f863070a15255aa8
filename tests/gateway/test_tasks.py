"""GetTask, ListTasks, CancelTask, and tasks whose view was lost."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from gateway.event_fanout import EventFanout
from stores.redis_connection import connect_redis
from stores.redis_task_views import RedisTaskViews
from stores.task_views import TaskViews
from tests.gateway.stage import (
    RunningGateway,
    StagedModel,
    running_gateway,
    staged_worker,
    stand_in_worker,
    unique,
)
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.processes import running_valkey
from workflows.contract.tasks import TaskState as State
from workflows.contract.tasks import TaskStatus, TaskView


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


async def test_canceling_ends_the_task(blocking: A2AClient, model: StagedModel) -> None:
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


async def test_a_task_that_nobody_works_on_is_canceled_later(client: Client, views: TaskViews) -> None:
    """Without a worker CancelTask returns the task as it stands; the request is not lost."""
    queue = unique("nobody")
    async with (
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(unique("cancel"), return_immediately=True))
        assert (await a2a.cancel_task(CancelTaskRequest(id=task.id))).status == task.status
        async with staged_worker(client, views, queue):
            canceled = await _until_ended(a2a, task)

    assert canceled.status.state == TaskState.TASK_STATE_CANCELED


async def _until_ended(a2a: A2AClient, task: Task) -> Task:
    while True:
        shown = await a2a.get_task(GetTaskRequest(id=task.id))
        if shown.status.state != TaskState.TASK_STATE_SUBMITTED:
            return shown


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


async def test_lists_can_be_filtered(blocking: A2AClient, model: StagedModel) -> None:
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


@pytest.mark.parametrize("restored_by", ["its follower", "another client"])
async def test_a_lost_view_comes_back_from_the_workflow(
    tmp_path: Path, client: Client, restored_by: str
) -> None:
    """Redis emptied in the middle of an answer: who follows it goes on, and ends with the whole text."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = RedisTaskViews(redis), unique("lost")
        async with (
            staged_worker(client, views, queue) as model,
            running_gateway(
                client, views, queue=queue, fanout=EventFanout(views, idle_check=0.05)
            ) as gateway,
            connected(gateway.url) as a2a,
        ):
            prompt, gate = unique("lost"), asyncio.Event()
            model.scripts[prompt] = ["half ", gate, "whole"]
            follower = Answer()
            stream = a2a.send_message(request(prompt))
            while follower.text != "half ":
                follower.add(await anext(stream))
            await redis.flushall()
            if restored_by == "another client":
                task = await a2a.get_task(GetTaskRequest(id=follower.task_id))
            else:
                follower.add(await anext(stream))
                task = follower.responses[-1].task
            gate.set()
            await follower.read(stream)
            ended = await a2a.get_task(GetTaskRequest(id=follower.task_id))

    assert task.status.state == TaskState.TASK_STATE_WORKING
    assert [message.parts[0].text for message in task.history] == [prompt]
    assert follower.states[-1] == ended.status.state == TaskState.TASK_STATE_COMPLETED
    assert follower.text == response_of(ended) == "half whole"


async def test_a_finished_task_comes_back_too(tmp_path: Path, client: Client) -> None:
    """The workflow of a finished task still knows its answer."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = RedisTaskViews(redis), unique("finished")
        async with (
            staged_worker(client, views, queue),
            running_gateway(client, views, queue=queue) as gateway,
            connected(gateway.url, streaming=False) as a2a,
        ):
            message = request(unique("done"))
            task = await send(a2a, message)
            await redis.flushall()
            restored = await a2a.get_task(GetTaskRequest(id=task.id))
            await redis.flushall()
            message.configuration.return_immediately = True
            sent_again = await send(a2a, message)

    assert response_of(restored) == response_of(sent_again) == response_of(task)
    assert restored.status == sent_again.status == task.status


async def test_a_lost_view_without_a_worker_shows_the_beginning(tmp_path: Path, client: Client) -> None:
    """Nobody can answer for the task: its history still tells that it was submitted, and with what."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = RedisTaskViews(redis), unique("nobody")
        async with (
            running_gateway(client, views, queue=queue) as gateway,
            connected(gateway.url, streaming=False) as a2a,
            connected(gateway.url) as streaming,
        ):
            prompt = unique("lost")
            task = await send(a2a, request(prompt, return_immediately=True))
            await redis.flushall()
            got = await a2a.get_task(GetTaskRequest(id=task.id))
            stream = streaming.subscribe(SubscribeToTaskRequest(id=task.id))
            follower = Answer()
            follower.add(await anext(stream))
            async with staged_worker(client, views, queue):
                await follower.read(stream)

    assert got == task
    assert follower.text == prompt
    assert follower.states[-1] == TaskState.TASK_STATE_COMPLETED


@workflow.defn(name="SomethingElse", sandboxed=False)
class SomethingElse:
    """A workflow of the namespace that is no task."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


@pytest.mark.parametrize("worker", ["works", "is away"])
async def test_a_workflow_that_is_no_task_is_not_found(client: Client, views: TaskViews, worker: str) -> None:
    """Ids of other workflows in the namespace lead nowhere."""
    queue = unique("else")
    handle = await client.start_workflow(SomethingElse.run, id=unique("else"), task_queue=queue)
    async with running_gateway(client, views, queue=queue) as gateway, connected(gateway.url) as a2a:
        if worker == "works":
            async with Worker(client, task_queue=queue, workflows=[SomethingElse]):
                with pytest.raises(TaskNotFoundError):
                    await a2a.get_task(GetTaskRequest(id=handle.id))
        else:
            with pytest.raises(TaskNotFoundError):
                await a2a.get_task(GetTaskRequest(id=handle.id))
    await handle.terminate()


def _in(context_id: str) -> SendMessageRequest:
    message = request(unique("listed"))
    message.message.context_id = context_id
    return message
