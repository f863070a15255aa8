"""SendMessage: a message starts a task once, and the client gets the task it asked for."""

import asyncio

import pytest
from a2a.client import Client as A2AClient
from a2a.types.a2a_pb2 import SendMessageRequest, TaskState
from temporalio.client import Client

from everloop.agents.agent import Agent
from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.names import AGENT_ID, CONTEXT_ID, OWNER, place_in_queues
from tests.gateway.harness import Named, PromptModel, running_gateway, unique
from tests.support.a2a_client import connected, request, send


async def test_a_client_that_waits_too_long_gets_the_task_as_it_stands(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> None:
    """A blocking call ends after the blocking timeout, without an error."""
    prompt, gate = unique("endless"), asyncio.Event()
    model.scripts[prompt] = [gate]
    async with (
        running_gateway(client, views, queue=queue, blocking_timeout=0.1) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        task = await send(a2a, request(prompt))
    gate.set()
    assert task.status.state in {TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}


async def test_the_same_message_sent_often_is_one_task(blocking: A2AClient, model: PromptModel) -> None:
    """Twenty identical sends at once start one task, and all get its one answer."""
    message = request(unique("same"))
    tasks = await asyncio.gather(*(send(blocking, message) for _ in range(20)))
    assert all(task == tasks[0] for task in tasks)
    assert tasks[0].status.state == TaskState.TASK_STATE_COMPLETED
    assert len([call for call in model.calls if call.task.task_id == tasks[0].id]) == 1


@pytest.mark.parametrize("changed", ["text", "context", "message id"])
async def test_another_message_is_another_task(blocking: A2AClient, changed: str) -> None:
    """Same id with other content, or same content with another id: a new task."""
    prompt, message_id, context_id = unique("this"), unique("message"), unique("context")
    first = request(prompt, message_id=message_id)
    first.message.context_id = context_id
    second = SendMessageRequest()
    second.CopyFrom(first)
    match changed:
        case "text":
            second.message.parts[0].text += "!"
        case "context":
            second.message.context_id += "!"
        case _:
            second.message.message_id += "!"
    tasks = [await send(blocking, first), await send(blocking, second)]
    assert tasks[0].id != tasks[1].id
    assert tasks[0].context_id == context_id


async def test_a_started_task_can_be_found_in_temporal(blocking: A2AClient, client: Client) -> None:
    """The workflow id is the task id; search attributes and summary say whose task it is and what for."""
    prompt = unique("summary") + " ö" * 300
    task = await send(blocking, request(prompt))
    description = await client.get_workflow_handle(task.id).describe()
    attributes = description.typed_search_attributes
    assert (attributes[AGENT_ID], attributes[OWNER]) == ("staged", "anonymous")
    assert attributes[CONTEXT_ID] == task.context_id
    summary = await description.static_summary()
    assert summary
    assert summary.startswith(f"Staged: {prompt[:20]}")
    assert len(summary.encode()) <= 200


async def test_a_started_task_has_its_place_in_queues(client: Client, views: TaskViews) -> None:
    """Owners get equal parts of what there is, and the agent says who goes first."""
    agent = Agent(id="urgent", name="U", description="U.", model="scripted", priority=2)
    owner, queue, access = unique("owner"), unique("nobody"), AccessControl(Named(), RequestLimits())
    async with (
        running_gateway(client, views, queue=queue, agent=agent, access=access) as gateway,
        connected(gateway.url, streaming=False, headers={"owner": owner}) as a2a,
    ):
        task = await send(a2a, request(unique("place"), return_immediately=True))
        run = client.get_workflow_handle(task.id)
        place = (await run.describe()).raw_description.workflow_execution_info.priority
        await run.terminate()
    wanted = place_in_queues(owner, 2)
    assert (place.priority_key, place.fairness_key) == (2, wanted.fairness_key)
