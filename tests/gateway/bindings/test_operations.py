"""Every operation on every binding, with the official client: the same results, the same errors."""

import asyncio

import pytest
from _pytest.mark.structures import ParameterSet
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.gateway.grpc_harness import GrpcGateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import Answer, Binding, Version, connected, request, response_of, send

Address = tuple[Binding, Version, str]
BINDINGS: list[tuple[Binding, Version]] = [
    ("JSONRPC", "1.0"),
    ("HTTP+JSON", "1.0"),
    ("GRPC", "1.0"),
    ("JSONRPC", "0.3"),
    ("HTTP+JSON", "0.3"),
    ("GRPC", "0.3"),
]
ADDRESSES: list[Address] = [(*each, at) for each in BINDINGS for at in ("", "agents/other")][:-1]
"""Each binding and version, at the root and at an agent's own address; gRPC of 0.3 knows no agents."""


def param(address: Address, *, is_slow: bool) -> ParameterSet:
    return pytest.param(address, id=" ".join(address).strip(), marks=[pytest.mark.slow] if is_slow else [])


SMOKE = [param(each, is_slow=bool(each[2])) for each in ADDRESSES]


async def waiting(a2a: A2AClient, model: PromptModel, gate: asyncio.Event) -> pb.Task:
    """Return a task that works until the gate opens."""
    prompt = unique("waiting")
    model.scripts[prompt] = ["half ", gate, "whole"]
    async for response in a2a.send_message(request(prompt)):
        known = response.task.id if response.task.artifacts else response.artifact_update.task_id
        if known:
            return await a2a.get_task(pb.GetTaskRequest(id=known))
    raise AssertionError("it ended")


async def read(a2a: A2AClient, task_id: str) -> None:
    await a2a.get_task(pb.GetTaskRequest(id=task_id))


async def cancel(a2a: A2AClient, task_id: str) -> None:
    await a2a.cancel_task(pb.CancelTaskRequest(id=task_id))


async def subscribe(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.subscribe(pb.SubscribeToTaskRequest(id=task_id)))


async def create_config(a2a: A2AClient, task_id: str, config_id: str = "c") -> None:
    config = pb.TaskPushNotificationConfig(
        task_id=task_id, id=config_id, url="https://hooks.example/x", token="t"
    )
    created = await a2a.create_task_push_notification_config(config)
    params = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    assert created == await a2a.get_task_push_notification_config(params)
    assert (created.task_id, created.id, created.url, created.token) == (task_id, config_id, config.url, "t")


FILE = pb.Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream")


@pytest.mark.parametrize("address", SMOKE)
async def test_each_binding_has_every_operation(
    served: GrpcGateway, model: PromptModel, address: Address
) -> None:
    """A task is streamed, joined, read, canceled, has configs and files; what is wrong is refused."""
    binding, version, at = address
    gate, answer = asyncio.Event(), Answer()
    async with connected(served.url + at, binding=binding, version=version) as a2a:
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
        for act, error in ((cancel, TaskNotCancelableError), (subscribe, UnsupportedOperationError)):
            with pytest.raises(error):
                await act(a2a, task.id)
        with pytest.raises(TaskNotFoundError):
            await read(a2a, unique("nobody"))
    async with connected(served.url + at, binding=binding, version=version, streaming=False) as a2a:
        prompt = unique("blocking")
        message = request(prompt)
        message.message.parts.append(FILE)
        sent = await send(a2a, message)
    assert answer.responses[0].HasField("task")
    assert (answer.text, response_of(done), len(done.history)) == ("half whole", "half whole", 1)
    assert answer.states[-1] == done.status.state == sent.status.state == pb.TASK_STATE_COMPLETED
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    assert response_of(sent) == prompt
    assert sent.history[0].parts[1] == FILE
