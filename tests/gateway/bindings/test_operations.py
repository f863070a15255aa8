"""Every operation on every binding over HTTP, with the official client: the same results, the same errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import pytest
import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from temporalio.client import Client

from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import AGENT, PromptModel, RunningGateway, running_gateway, unique
from tests.gateway.push.remembered_push import RememberedPush
from tests.support.a2a_client import Answer, Binding, Version, connected, request, response_of, send

OTHER = replace(AGENT, id="other", name="Other")

BINDINGS: list[tuple[Binding, Version]] = [
    ("JSONRPC", "1.0"),
    ("HTTP+JSON", "1.0"),
    ("JSONRPC", "0.3"),
    ("HTTP+JSON", "0.3"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[RunningGateway]:
    """A gateway with two agents and push notifications."""
    agents, push = [AGENT, OTHER], RememberedPush()
    async with running_gateway(client, views, queue=queue, agents=agents, push=push) as gateway:
        yield gateway


Address = tuple[Binding, Version, str]
ADDRESSES: list[Address] = [(*each, at) for each in BINDINGS for at in ("", "agents/other")]


@pytest.fixture(scope="module", params=ADDRESSES, ids=[" ".join(each).strip() for each in ADDRESSES])
def address(request: pytest.FixtureRequest) -> Address:
    """Each binding and version, at the root and at an agent's own address."""
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def a2a(served: RunningGateway, address: Address) -> AsyncGenerator[A2AClient]:
    """A client that streams."""
    binding, version, at = address
    async with connected(served.url + at, binding=binding, version=version) as a2a:
        yield a2a


async def completed(a2a: A2AClient) -> pb.Task:
    """Return a task that has ended."""
    answer = await Answer().read(a2a.send_message(request(unique("done"))))
    return await a2a.get_task(pb.GetTaskRequest(id=answer.task_id))


async def waiting(a2a: A2AClient, model: PromptModel, gate: asyncio.Event) -> pb.Task:
    """Return a task that works until the gate opens."""
    prompt = unique("waiting")
    model.scripts[prompt] = ["half ", gate, "whole"]
    async for response in a2a.send_message(request(prompt)):
        if response.HasField("artifact_update"):
            return await a2a.get_task(pb.GetTaskRequest(id=response.artifact_update.task_id))
    raise AssertionError("it ended")


async def test_a_message_is_streamed(a2a: A2AClient, model: PromptModel) -> None:
    """The task, its text in pieces, its end."""
    prompt = unique("streamed")
    model.scripts[prompt] = ["one ", "two"]

    answer = await Answer().read(a2a.send_message(request(prompt)))

    assert answer.responses[0].HasField("task")
    assert answer.text == "one two"
    assert answer.states[-1] == pb.TaskState.TASK_STATE_COMPLETED


async def test_a_message_is_answered(served: RunningGateway, address: Address) -> None:
    """A blocking send returns the task with its answer, as GetTask does."""
    prompt = unique("blocking")
    binding, version, at = address
    async with connected(served.url + at, binding=binding, version=version, streaming=False) as a2a:
        task = await send(a2a, request(prompt))

        assert task.status.state == pb.TaskState.TASK_STATE_COMPLETED
        assert response_of(task) == prompt
        assert await a2a.get_task(pb.GetTaskRequest(id=task.id)) == task


async def test_a_task_is_read_with_as_much_history_as_asked_for(a2a: A2AClient) -> None:
    """All of it by default, the last message with 1."""
    task = await completed(a2a)

    (only,) = (await a2a.get_task(pb.GetTaskRequest(id=task.id, history_length=1))).history
    assert only == task.history[-1]


async def test_a_subscriber_joins_and_hears_the_end(a2a: A2AClient, model: PromptModel) -> None:
    """Subscribing begins with the task as it stands."""
    gate = asyncio.Event()
    task = await waiting(a2a, model, gate)
    answer = Answer()

    subscription = a2a.subscribe(pb.SubscribeToTaskRequest(id=task.id))
    answer.add(await anext(subscription))
    assert answer.text == "half "
    gate.set()
    await answer.read(subscription)

    assert answer.text == "half whole"
    assert answer.states[-1] == pb.TaskState.TASK_STATE_COMPLETED


async def test_a_task_is_canceled(a2a: A2AClient, model: PromptModel) -> None:
    """Canceling returns the canceled task."""
    task = await waiting(a2a, model, asyncio.Event())

    canceled = await a2a.cancel_task(pb.CancelTaskRequest(id=task.id))

    assert (canceled.id, canceled.status.state) == (task.id, pb.TaskState.TASK_STATE_CANCELED)


async def test_a_push_config_is_created_and_read(a2a: A2AClient) -> None:
    """It comes back as it was set."""
    task = await completed(a2a)
    config = pb.TaskPushNotificationConfig(task_id=task.id, id="c1", url="https://hooks.example/x", token="t")

    created = await a2a.create_task_push_notification_config(config)
    read = await a2a.get_task_push_notification_config(
        pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="c1")
    )

    assert created == read
    assert (read.task_id, read.id, read.url, read.token) == (task.id, "c1", config.url, "t")


async def read(a2a: A2AClient, task_id: str) -> None:
    await a2a.get_task(pb.GetTaskRequest(id=task_id))


async def cancel(a2a: A2AClient, task_id: str) -> None:
    await a2a.cancel_task(pb.CancelTaskRequest(id=task_id))


async def subscribe(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.subscribe(pb.SubscribeToTaskRequest(id=task_id)))


async def follow_up(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.send_message(request("more", task_id=task_id)))


async def say_nothing(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.send_message(request("")))


async def read_config(a2a: A2AClient, task_id: str) -> None:
    params = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id="c")
    await a2a.get_task_push_notification_config(params)


Act = Callable[[A2AClient, str], Awaitable[None]]


@pytest.mark.parametrize("act", [read, cancel, subscribe, follow_up, read_config])
async def test_a_task_that_is_not_there_is_not_found(a2a: A2AClient, act: Act) -> None:
    """The same error on every binding."""
    task_id = unique("nobody")
    with pytest.raises(TaskNotFoundError, match=task_id):
        await act(a2a, task_id)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (cancel, TaskNotCancelableError),
        (subscribe, UnsupportedOperationError),
        (follow_up, UnsupportedOperationError),
        (say_nothing, InvalidParamsError),
    ],
)
async def test_what_cannot_be_done_is_refused(a2a: A2AClient, act: Act, expected: type[A2AError]) -> None:
    """An ended task takes nothing more; an empty message is none."""
    task = await completed(a2a)
    with pytest.raises(expected):
        await act(a2a, task.id)


async def test_a_task_is_seen_at_the_address_of_its_agent_only(served: RunningGateway) -> None:
    """At another address it does not exist."""
    async with connected(served.url) as root, connected(f"{served.url}agents/other") as other:
        task = await completed(other)
        with pytest.raises(TaskNotFoundError):
            await root.get_task(pb.GetTaskRequest(id=task.id))
        listed = await other.list_tasks(pb.ListTasksRequest(context_id=task.context_id))

    assert [each.id for each in listed.tasks] == [task.id]


async def test_a_file_comes_as_it_was_sent(a2a: A2AClient) -> None:
    """Its bytes, its name and its media type, whatever the binding makes of them on the way."""
    message = request(unique("file"))
    sent = pb.Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream")
    message.message.parts.append(sent)

    answer = await Answer().read(a2a.send_message(message))
    (_, received) = (await a2a.get_task(pb.GetTaskRequest(id=answer.task_id))).history[0].parts

    assert (received.raw, received.filename, received.media_type) == (
        sent.raw,
        sent.filename,
        sent.media_type,
    )
