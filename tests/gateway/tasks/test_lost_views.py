"""Tasks whose view was lost: recovery from the workflow, or its history."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from a2a.client import A2AClientError
from a2a.types.a2a_pb2 import GetTaskRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import MessageToDict
from temporalio import workflow
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from everloop.cli.reindex.listed_tasks import Chosen, FoundTask, listed_tasks
from everloop.gateway.tasks.fanout import EventFanout
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.redis import connect_redis
from everloop.runtime.temporal.executions import TaskExecutions
from everloop.stores.keys import head_key, log_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.tasks import TaskState as State
from tests.gateway.harness import (
    StoodIn,
    running_gateway,
    scripted_worker,
    stand_in_worker,
    task_input,
    unique,
)
from tests.support.a2a_client import Answer, connected, request, response_of, send
from tests.support.servers.processes import running_valkey
from tests.support.stores import redis_of


@pytest.mark.parametrize("restored_by", ["its follower", "another client"])
async def test_a_lost_view_comes_back_from_the_workflow(
    tmp_path: Path, client: Client, restored_by: str
) -> None:
    """Redis emptied in the middle of an answer: subscribers go on, and end with the whole text."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = TaskViews(redis), unique("lost")
        async with (
            scripted_worker(client, views, queue) as model,
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


async def test_a_lost_view_without_a_worker_shows_the_beginning(tmp_path: Path, client: Client) -> None:
    """Without a worker no query is answered: the history still has the submitted message."""
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = TaskViews(redis), unique("nobody")
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
            async with scripted_worker(client, views, queue):
                await follower.read(stream)
    assert got == task
    assert follower.text == prompt
    assert follower.states[-1] == TaskState.TASK_STATE_COMPLETED


async def test_the_beginning_is_not_shown_where_clients_know_more(tmp_path: Path, client: Client) -> None:
    """The task has gone on by its stream, its view is lost, no worker answers: 503, not "submitted".

    The same holds if the gateway that began the task died before it stored the view.
    """
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views, queue = TaskViews(redis), unique("gone-on")
        async with (
            running_gateway(client, views, queue=queue) as gateway,
            connected(gateway.url, streaming=False) as a2a,
        ):
            task = await send(a2a, request(unique("lost"), return_immediately=True))
            await redis.flushall()
            at = datetime.now(UTC)
            status = StatusChanged(version=1, state=State.COMPLETED, at=at)
            await views.publish(task.id, "run", [status])
            with pytest.raises(A2AClientError, match="503"):
                await a2a.get_task(GetTaskRequest(id=task.id))


@pytest.mark.parametrize("has_lost", ["a status", "everything"])
async def test_what_a_lost_status_said_comes_back_from_the_workflow(
    client: Client, views: TaskViews, has_lost: str
) -> None:
    """A failover of Redis lost the status that took a message in: subscribers get the whole task.

    So do clients that resume from before it, and readers of the task.
    """
    queue, first, second = unique("torn"), unique("first"), unique("second")
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url) as streaming,
        connected(gateway.url, streaming=False) as a2a,
    ):
        follower = Answer()
        stream = streaming.send_message(asked := request(first))
        follower.add(await anext(stream))
        task = StoodIn(client, views, follower.responses[0].task)
        await task.publish(State.WORKING)
        follower.add(await anext(stream))
        before = (await views.read({task.id: START}, wait=0))[-1].position
        await send(a2a, request(second, task_id=task.id, return_immediately=True))
        task.lose_status()
        if has_lost == "everything":
            await redis_of(views).delete(head_key(task.id), log_key(task.id))
        await task.publish(State.INPUT_REQUIRED)
        await follower.read(stream)
        got = await a2a.get_task(GetTaskRequest(id=task.id))
        again = MessageToDict(asked)
        later = await gateway.call("SendStreamingMessage", again, **{"Last-Event-ID": before})
        await task.end()

    whole = follower.responses[-1].task
    assert [message.parts[0].text for message in whole.history] == [first, second]
    assert (got.history, got.status.state) == (whole.history, TaskState.TASK_STATE_INPUT_REQUIRED)
    assert second in later.text


@workflow.defn(name="SomethingElse", sandboxed=False)
class SomethingElse:
    """A workflow of the namespace that is not a task."""

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
            async with Worker(client, task_queue=queue, build_id="test", workflows=[SomethingElse]):
                with pytest.raises(TaskNotFoundError):
                    await a2a.get_task(GetTaskRequest(id=handle.id))
        else:
            with pytest.raises(TaskNotFoundError):
                await a2a.get_task(GetTaskRequest(id=handle.id))
    await handle.terminate()


async def test_reindex_finds_a_task_that_an_operator_has_paused(client: Client) -> None:
    """It is open, though Temporal does not list it as running."""
    queue, task_id = unique("nobody"), unique("paused")
    await Tasks(client, queue).start(task_id, task_input(), summary="paused")
    paused = PauseWorkflowExecutionRequest(namespace=client.namespace, workflow_id=task_id, request_id="r")
    await client.workflow_service.pause_workflow_execution(paused)
    query = f"WorkflowId = '{task_id}' AND ExecutionStatus = 'Paused'"
    while not (await client.count_workflows(query)).count:  # noqa: ASYNC110 -- a fact of the server, no event
        await asyncio.sleep(0.05)
    found = [page async for page in listed_tasks(client, Chosen(queue, "", "", datetime.now(UTC)))]
    assert found == [[FoundTask(task_id, is_running=True)]]
    await client.get_workflow_handle(task_id).terminate()


@pytest.mark.parametrize("owner", ["it's", 'O="Acme, Inc"', "a\\b", '"'])
async def test_tasks_are_found_whatever_signs_their_owner_has(client: Client, owner: str) -> None:
    """By reindex and by deletion; tasks of an owner with the same prefix are not."""
    queue, task_id = unique("nobody"), unique("signs")
    owners = {task_id: f"{owner}{queue}", unique("other"): f"{owner}{queue}x"}
    for each, whose in owners.items():
        await Tasks(client, queue).start(each, task_input(owner=whose), summary="signs")
    while (await client.count_workflows(f"TaskQueue = '{queue}'")).count < len(owners):  # noqa: ASYNC110 -- a fact of the server
        await asyncio.sleep(0.05)
    chosen = Chosen(queue, "", owners[task_id], datetime.now(UTC))
    listed = [task.task_id async for page in listed_tasks(client, chosen) for task in page]
    deleted = [found async for found, _, _ in TaskExecutions(client).tasks_of(owners[task_id])]
    assert (listed, deleted) == ([task_id], [task_id])
    for each in owners:
        await client.get_workflow_handle(each).terminate()
