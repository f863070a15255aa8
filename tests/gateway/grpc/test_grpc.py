"""gRPC: the operations of both versions of A2A, for the official client."""

import asyncio
from collections.abc import AsyncGenerator

import grpc
import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from temporalio.client import Client

from everloop.runtime.protocol.tasks import EVENTS_EXTENSION
from everloop.stores.views.interface import TaskViews
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import Answer, Version, connected, request, response_of, send

pytestmark = pytest.mark.parametrize("version", ["1.0", "0.3"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def grpc_gateway(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[GrpcGateway]:
    async with running_grpc_gateway(client, views, queue=queue) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="session")
async def caller(grpc_gateway: GrpcGateway, version: Version) -> AsyncGenerator[A2AClient]:
    async with connected(grpc_gateway.url, binding="GRPC", version=version) as caller:
        yield caller


async def test_a_message_is_answered(grpc_gateway: GrpcGateway, version: Version) -> None:
    """A blocking send returns the task when it has ended, and GetTask returns the same."""
    prompt = unique("hello")
    async with connected(grpc_gateway.url, binding="GRPC", version=version, streaming=False) as caller:
        task = await send(caller, request(prompt))
        read = await caller.get_task(pb.GetTaskRequest(id=task.id))

    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert response_of(task) == prompt
    assert read == task


async def test_a_stream_is_the_task_then_its_updates(caller: A2AClient, model: PromptModel) -> None:
    """The first event is the task, the last its end, and the text in between is whole."""
    prompt, words = unique("stream"), [f"word{n} " for n in range(20)]
    model.scripts[prompt] = words

    answer = await Answer().read(caller.send_message(request(prompt)))

    assert answer.responses[0].HasField("task")
    assert answer.text == "".join(words)
    assert answer.states[-1] == pb.TASK_STATE_COMPLETED


async def test_a_subscriber_sees_the_rest(caller: A2AClient, model: PromptModel) -> None:
    """Whoever subscribes to a running task sees it as it stands, and then everything up to its end."""
    prompt, gate = unique("join"), asyncio.Event()
    model.scripts[prompt] = ["one ", gate, "two"]
    first, second = Answer(), Answer()
    stream = caller.send_message(request(prompt))
    while first.text != "one ":
        first.add(await anext(stream))
    subscription = caller.subscribe(pb.SubscribeToTaskRequest(id=first.task_id))
    second.add(await anext(subscription))
    gate.set()
    await asyncio.gather(first.read(stream), second.read(subscription))

    assert first.text == second.text == "one two"


async def test_a_task_that_has_ended_is_not_subscribed_to(caller: A2AClient) -> None:
    """The error says so, and what to do."""
    task = (await Answer().read(caller.send_message(request(unique("over"))))).task_id

    with pytest.raises(UnsupportedOperationError, match="read it with GetTask"):
        await anext(caller.subscribe(pb.SubscribeToTaskRequest(id=task)))


async def test_a_task_is_canceled(caller: A2AClient, model: PromptModel) -> None:
    """It ends as canceled; a task that completed cannot be."""
    prompt = unique("cancel")
    model.scripts[prompt] = ["one ", asyncio.Event()]
    stream = caller.send_message(request(prompt))
    running = (await anext(stream)).task.id

    canceled = await caller.cancel_task(pb.CancelTaskRequest(id=running))
    ended = (await Answer().read(caller.send_message(request(unique("over"))))).task_id

    assert canceled.status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await caller.cancel_task(pb.CancelTaskRequest(id=ended))


async def test_tasks_are_listed(grpc_gateway: GrpcGateway, caller: A2AClient, version: Version) -> None:
    """ListTasks, which 0.3 does not have, returns the tasks of a context."""
    task_id = (await Answer().read(caller.send_message(request(unique("listed"))))).task_id
    context_id = (await caller.get_task(pb.GetTaskRequest(id=task_id))).context_id
    if version == "0.3":
        with pytest.raises(NotImplementedError):  # the official client knows that 0.3 has no such call
            await caller.list_tasks(pb.ListTasksRequest(context_id=context_id))
        return

    listed = await caller.list_tasks(pb.ListTasksRequest(context_id=context_id))

    assert [task.id for task in listed.tasks] == [task_id]


async def test_a_server_without_notifications_says_so(caller: A2AClient) -> None:
    """Every operation on push notification configs is refused with the error that A2A has for it."""
    task = (await Answer().read(caller.send_message(request(unique("push"))))).task_id
    config = pb.TaskPushNotificationConfig(task_id=task, id="c", url="https://hooks.example/")

    with pytest.raises(PushNotificationNotSupportedError):
        await caller.create_task_push_notification_config(config)
    with pytest.raises(PushNotificationNotSupportedError):
        await caller.get_task_push_notification_config(
            pb.GetTaskPushNotificationConfigRequest(task_id=task, id="c")
        )
    with pytest.raises(PushNotificationNotSupportedError):
        await caller.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id="c")
        )
    with pytest.raises(PushNotificationNotSupportedError):
        await caller.list_task_push_notification_configs(
            pb.ListTaskPushNotificationConfigsRequest(task_id=task)
        )


async def test_a_task_that_is_not_there_is_not_found(caller: A2AClient) -> None:
    """The official client raises A2A's own error."""
    with pytest.raises(TaskNotFoundError, match="no task"):
        await caller.get_task(pb.GetTaskRequest(id=unique("none")))


async def test_the_events_extension_is_answered(grpc_gateway: GrpcGateway, version: Version) -> None:
    """Whoever asks for it hears that it is active, in the metadata that come first (A2A 1.0 §3.2.6)."""
    method, asked, answered = {
        "1.0": ("/lf.a2a.v1.A2AService/GetTask", "a2a-extensions", "a2a-extensions"),
        "0.3": ("/a2a.v1.A2AService/GetTask", "x-a2a-extensions", "x-a2a-extensions"),
    }[version]
    named: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = grpc_gateway.channel.unary_unary(method)
    call = named(b"", metadata=((asked, f"https://other.example/, {EVENTS_EXTENSION}"),))

    metadata = dict(await call.initial_metadata())

    assert metadata[answered] == EVENTS_EXTENSION
    assert await call.code() is not grpc.StatusCode.OK
