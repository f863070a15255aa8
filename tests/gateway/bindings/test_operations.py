"""Every operation on every binding, with the official client: the same results, the same errors."""

import asyncio
from typing import get_args

import pytest
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from tests.gateway.grpc_harness import GrpcGateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import BINDINGS, Answer, Binding, Version, connected, request, response_of, send


async def waiting(a2a: A2AClient, model: PromptModel, gate: asyncio.Event) -> pb.Task:
    """Return a task that works until the gate opens."""
    prompt = unique("waiting")
    model.scripts[prompt] = ["half ", gate, "whole"]
    async for response in a2a.send_message(request(prompt)):
        known = response.task.id if response.task.artifacts else response.artifact_update.task_id
        if known:
            return await a2a.get_task(pb.GetTaskRequest(id=known))
    raise AssertionError("it ended")


async def cancel(a2a: A2AClient, task_id: str) -> None:
    await a2a.cancel_task(pb.CancelTaskRequest(id=task_id))


async def subscribe(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.subscribe(pb.SubscribeToTaskRequest(id=task_id)))


async def create_config(a2a: A2AClient, task_id: str) -> None:
    config = pb.TaskPushNotificationConfig(task_id=task_id, id="c", url="https://hooks.example/x", token="t")
    params = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id="c")
    assert await a2a.create_task_push_notification_config(config) == config
    assert await a2a.get_task_push_notification_config(params) == config


FILE = pb.Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream")


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", get_args(Version))
async def test_each_binding_has_every_operation(
    served: GrpcGateway, model: PromptModel, binding: Binding, version: Version
) -> None:
    """A task is streamed, joined, read, canceled, has configs and files; invalid requests are refused."""
    gate, answer = asyncio.Event(), Answer()
    async with connected(served.url, binding=binding, version=version) as a2a:
        task = await waiting(a2a, model, gate)
        subscription = a2a.subscribe(pb.SubscribeToTaskRequest(id=task.id))
        answer.add(await anext(subscription))
        gate.set()
        await answer.read(subscription)
        done = await a2a.get_task(pb.GetTaskRequest(id=task.id, history_length=1))
        await create_config(a2a, task.id)
        canceled = await a2a.cancel_task(
            pb.CancelTaskRequest(id=(await waiting(a2a, model, asyncio.Event())).id)
        )
        again = [] if version == "0.3" else [await a2a.cancel_task(pb.CancelTaskRequest(id=canceled.id))]
        if not again:  # 0.3 refuses what 1.0 answers: canceling is idempotent there
            with pytest.raises(TaskNotCancelableError):
                await cancel(a2a, canceled.id)
        for act, error in ((cancel, TaskNotCancelableError), (subscribe, UnsupportedOperationError)):
            with pytest.raises(error):
                await act(a2a, task.id)
        with pytest.raises(TaskNotFoundError):
            await a2a.get_task(pb.GetTaskRequest(id=unique("nobody")))
    async with connected(served.url, binding=binding, version=version, streaming=False) as a2a:
        prompt = unique("blocking")
        message = request(prompt)
        message.message.parts.append(FILE)
        sent = await send(a2a, message)
    assert answer.responses[0].HasField("task")
    assert (answer.text, response_of(done), len(done.history)) == ("half whole", "half whole", 1)
    assert answer.states[-1] == done.status.state == sent.status.state == pb.TASK_STATE_COMPLETED
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    assert again in ([], [canceled])
    assert response_of(sent) == prompt
    assert sent.history[0].parts[1] == FILE
