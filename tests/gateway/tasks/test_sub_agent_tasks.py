"""Tasks of sub-agents: their owner reads them, and only their parent task changes them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from everloop.gateway.context import ANONYMOUS
from everloop.workflows.contract import names
from everloop.workflows.contract.tasks import AgentSpec
from tests.gateway.harness import RunningGateway, StandInTask, stand_in_worker, task_input, unique
from tests.support.a2a_client import connected, request, send

Operation = Callable[[A2AClient, str], Awaitable[None]]


@asynccontextmanager
async def child_of(client: Client, root: str, context: str, owner: str = ANONYMOUS) -> AsyncGenerator[str]:
    """Start a sub-agent's task below a task."""
    queue = unique("child")
    task = task_input("write", context_id=context, owner=owner, agent=AgentSpec(id="writer"), depth=1)
    async with stand_in_worker(client, queue):
        child_id = names.child_task_id(root, unique("call"))
        attributes = TypedSearchAttributes([SearchAttributePair(names.AGENT_ID, task.agent.id)])
        child = await client.start_workflow(
            StandInTask.run, task, id=child_id, task_queue=queue, search_attributes=attributes
        )
        yield child_id
        assert len(await child.query(StandInTask.messages)) == 1
        await child.signal(StandInTask.end)
        await child.result()


async def begun(a2a: A2AClient) -> pb.Task:
    """Return a task of this test."""
    task = await send(a2a, request("Hello"))
    assert isinstance(task, pb.Task)
    return task


async def get(a2a: A2AClient, task_id: str) -> None:
    await a2a.get_task(GetTaskRequest(id=task_id))


async def subscribe(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.subscribe(SubscribeToTaskRequest(id=task_id)))


async def cancel(a2a: A2AClient, task_id: str) -> None:
    await a2a.cancel_task(CancelTaskRequest(id=task_id))


async def answer(a2a: A2AClient, task_id: str) -> None:
    await send(a2a, request("yes", task_id=task_id))


async def notify(a2a: A2AClient, task_id: str) -> None:
    await a2a.create_task_push_notification_config(
        pb.TaskPushNotificationConfig(task_id=task_id, url="https://client.example/hook")
    )


async def test_its_owner_reads_the_task_of_a_sub_agent(
    client: Client, blocking: A2AClient, a2a: A2AClient, gateway: RunningGateway
) -> None:
    """By GetTask, also if its id, which has a slash, is in an address, and by subscribing.

    Lists have only the tasks that clients began.
    """
    root = await begun(blocking)
    async with child_of(client, root.id, root.context_id) as child_id:
        task = await blocking.get_task(GetTaskRequest(id=child_id))
        assert (task.id, task.context_id) == (child_id, root.context_id)
        assert [part.text for part in task.history[0].parts] == ["write"]
        for base, version in (("", "1.0"), ("/v1", "0.3")):
            address, headers = f"{base}/tasks/{quote(child_id, safe='')}", {"A2A-Version": version}
            assert (await gateway.http.get(address, headers=headers)).json()["id"] == child_id
        first = await anext(a2a.subscribe(SubscribeToTaskRequest(id=child_id)))
        assert first.task.id == child_id
        listed = (await blocking.list_tasks(ListTasksRequest(context_id=root.context_id))).tasks
        assert [each.id for each in listed] == [root.id]


@pytest.mark.parametrize("operation", [cancel, answer, notify])
async def test_nobody_changes_the_task_of_a_sub_agent(
    client: Client, blocking: A2AClient, operation: Operation
) -> None:
    """The refusal names the parent task."""
    root = await begun(blocking)
    async with child_of(client, root.id, root.context_id) as child_id:
        with pytest.raises(UnsupportedOperationError, match=f"read only.*{root.id}"):
            await operation(blocking, child_id)


@pytest.mark.parametrize("operation", [get, subscribe, cancel, answer])
async def test_the_task_of_anothers_sub_agent_is_not_found(
    client: Client, gateway: RunningGateway, operation: Operation
) -> None:
    """Nor is a task with a similar id that belongs to another owner."""
    async with connected(gateway.url, streaming=False) as blocking, connected(gateway.url) as a2a:
        root = await begun(blocking)
        async with child_of(client, unique("parent"), "context") as of_unknown:
            with pytest.raises(TaskNotFoundError):
                await operation(a2a, of_unknown)
        async with child_of(client, root.id, root.context_id, owner="else") as of_another:
            with pytest.raises(TaskNotFoundError):
                await operation(a2a, of_another)


@pytest.mark.parametrize("operation", [get, subscribe, cancel, answer])
async def test_an_id_that_begins_with_a_slash_is_of_no_task(a2a: A2AClient, operation: Operation) -> None:
    """It has the form of a sub-agent's, below a client's task without an id."""
    for task_id in ("/", "/r00001-1"):
        with pytest.raises(TaskNotFoundError):
            await operation(a2a, task_id)
