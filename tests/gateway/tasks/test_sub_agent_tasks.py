"""Tasks of sub-agents: their parent speaks for them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from a2a.utils.errors import TaskNotFoundError
from temporalio.client import Client

from everloop.gateway.context import ANONYMOUS
from everloop.workflows.contract import names
from everloop.workflows.contract.messages import TextPart, UserMessage
from everloop.workflows.contract.tasks import AgentSpec, TaskInput
from tests.gateway.harness import RunningGateway, StandInTask, stand_in_worker, unique
from tests.support.a2a_client import connected, request, send

Operation = Callable[[A2AClient, str], Awaitable[None]]


async def get(a2a: A2AClient, task_id: str) -> None:
    await a2a.get_task(GetTaskRequest(id=task_id))


async def subscribe(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.subscribe(SubscribeToTaskRequest(id=task_id)))


async def cancel(a2a: A2AClient, task_id: str) -> None:
    await a2a.cancel_task(CancelTaskRequest(id=task_id))


async def answer(a2a: A2AClient, task_id: str) -> None:
    await send(a2a, request("yes", task_id=task_id))


@pytest.mark.parametrize("operation", [get, subscribe, cancel, answer])
async def test_the_task_of_a_sub_agent_is_not_found(
    client: Client, gateway: RunningGateway, operation: Operation
) -> None:
    """Not even its owner, whose own task waits for it, may see, list, answer or cancel it."""
    queue, context = unique("child"), unique("context")
    task = TaskInput(
        context_id=context,
        owner=ANONYMOUS,
        agent=AgentSpec(id="writer"),
        message=UserMessage(message_id="m", parts=(TextPart(text="write"),)),
        created_at=datetime.now(UTC),
        depth=1,
    )
    child_id = names.child_task_id(unique("parent"), "call_1")
    async with stand_in_worker(client, queue), connected(gateway.url) as a2a:
        child = await client.start_workflow(StandInTask.run, task, id=child_id, task_queue=queue)
        with pytest.raises(TaskNotFoundError):
            await operation(a2a, child_id)
        assert not (await a2a.list_tasks(ListTasksRequest(context_id=context))).tasks
        assert len(await child.query(StandInTask.messages)) == 1
        await child.signal(StandInTask.end)
        await child.result()
