"""Every operation on every binding, with the official client: the same results, the same errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import pytest_asyncio
from _pytest.mark.structures import ParameterSet
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from temporalio.client import Client

from everloop.stores.views.interface import TaskViews
from tests.gateway.bindings.conftest import OTHER
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.gateway.harness import PromptModel, unique
from tests.support.a2a_client import Answer, Binding, Version, connected, request, response_of, send
from tests.support.wires.wires import HttpWire, Wire

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


EVERYWHERE = [param(each, is_slow=each != ADDRESSES[0]) for each in ADDRESSES]
SMOKE = [param(each, is_slow=bool(each[2])) for each in ADDRESSES[1:]]


@pytest.fixture(scope="module", params=EVERYWHERE)
def address(request: pytest.FixtureRequest) -> Address:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def a2a(served: GrpcGateway, address: Address) -> AsyncGenerator[A2AClient]:
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


async def follow_up(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.send_message(request("more", task_id=task_id)))


async def say_nothing(a2a: A2AClient, task_id: str) -> None:
    await anext(a2a.send_message(request("")))


async def create_config(a2a: A2AClient, task_id: str, config_id: str = "c") -> None:
    config = pb.TaskPushNotificationConfig(
        task_id=task_id, id=config_id, url="https://hooks.example/x", token="t"
    )
    created = await a2a.create_task_push_notification_config(config)
    params = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)
    assert created == await a2a.get_task_push_notification_config(params)
    assert (created.task_id, created.id, created.url, created.token) == (task_id, config_id, config.url, "t")


async def read_config(a2a: A2AClient, task_id: str) -> None:
    params = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id="c")
    await a2a.get_task_push_notification_config(params)


async def list_configs(a2a: A2AClient, task_id: str) -> list[str]:
    params = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    return [each.id for each in (await a2a.list_task_push_notification_configs(params)).configs]


async def delete_config(a2a: A2AClient, task_id: str) -> None:
    params = pb.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="c")
    await a2a.delete_task_push_notification_config(params)


Act = Callable[[A2AClient, str], Awaitable[object]]


@pytest.mark.parametrize("address", SMOKE)
async def test_each_binding_has_every_operation(
    served: GrpcGateway, model: PromptModel, address: Address
) -> None:
    """A task is streamed, joined, read, canceled, and has configs; what is wrong is refused as elsewhere."""
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
        sent = await send(a2a, request(prompt))

    assert answer.responses[0].HasField("task")
    assert (answer.text, response_of(done), len(done.history)) == ("half whole", "half whole", 1)
    assert answer.states[-1] == done.status.state == sent.status.state == pb.TASK_STATE_COMPLETED
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    assert response_of(sent) == prompt


async def test_a_message_is_streamed(a2a: A2AClient, model: PromptModel) -> None:
    """The task, its text in pieces, its end."""
    prompt = unique("streamed")
    model.scripts[prompt] = [f"word{n} " for n in range(20)]
    answer = await Answer().read(a2a.send_message(request(prompt)))
    assert answer.responses[0].HasField("task")
    assert answer.text == "".join(f"word{n} " for n in range(20))
    assert answer.states[-1] == pb.TASK_STATE_COMPLETED


async def test_a_message_is_answered(served: GrpcGateway, address: Address) -> None:
    """A blocking send returns the task with its answer, as GetTask does."""
    prompt = unique("blocking")
    binding, version, at = address
    async with connected(served.url + at, binding=binding, version=version, streaming=False) as a2a:
        task = await send(a2a, request(prompt))
        assert task.status.state == pb.TASK_STATE_COMPLETED
        assert response_of(task) == prompt
        assert await a2a.get_task(pb.GetTaskRequest(id=task.id)) == task


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
    assert answer.states[-1] == pb.TASK_STATE_COMPLETED


async def test_a_push_config_is_created_and_read(a2a: A2AClient) -> None:
    """It comes back as it was set."""
    await create_config(a2a, (await completed(a2a)).id)


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


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_task_is_seen_at_the_address_of_its_agent_only(served: GrpcGateway, binding: Binding) -> None:
    """At another address it does not exist. On gRPC an agent is a tenant, as its card says."""
    async with (
        connected(served.url, binding=binding) as root,
        connected(f"{served.url}agents/{OTHER.id}", binding=binding) as other,
    ):
        task = await completed(other)
        with pytest.raises(TaskNotFoundError):
            await root.get_task(pb.GetTaskRequest(id=task.id))
        listed = await other.list_tasks(pb.ListTasksRequest(context_id=task.context_id))
    assert [each.id for each in listed.tasks] == [task.id]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_push_configs_are_listed_and_deleted(served: GrpcGateway, binding: Binding) -> None:
    """Deleting twice is no error."""
    async with connected(served.url, binding=binding) as a2a:
        task = await completed(a2a)
        for name in ("c", "d"):
            await create_config(a2a, task.id, name)
        assert await list_configs(a2a, task.id) == ["c", "d"]
        for _ in range(2):
            await delete_config(a2a, task.id)
        assert await list_configs(a2a, task.id) == ["d"]


async def test_push_configs_are_listed_and_deleted_in_the_old_version(
    served: GrpcGateway, wires: dict[str, Wire]
) -> None:
    """JSON-RPC answers a deletion with null, REST with {}; the id may stand beside the config."""
    async with connected(served.url) as a2a:
        task_id = (await completed(a2a)).id
    rpc, rest, config = wires["JSON-RPC 0.3"], wires["REST 0.3"], {"taskId": task_id, "id": "beside"}
    assert isinstance(rest, HttpWire)
    name = f"tasks/{task_id}/pushNotificationConfigs/beside"
    url = f"/v1/tasks/{task_id}/pushNotificationConfigs"
    body = {"configId": "beside", "config": {"pushNotificationConfig": {"url": "https://hooks.example/"}}}
    created = await rest.http.post(url, json=body)
    listed = await rest.send("ListTaskPushNotificationConfigs", config)
    assert created.json()["name"] == name
    assert [each["name"] for each in listed.result["configs"]] == [name]
    for _ in range(2):
        deleted = await rest.send("DeleteTaskPushNotificationConfig", config)
        assert (deleted.status, deleted.json) == (200, {})
        answer = await rpc.send("DeleteTaskPushNotificationConfig", config)
        assert answer.json == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert (await rest.send("ListTaskPushNotificationConfigs", config)).json == {}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_server_without_notifications_says_so(
    client: Client, views: TaskViews, queue: str, model: PromptModel, binding: Binding
) -> None:
    """Each operation on configs is refused, and a message that brings one starts no task (§3.3.4)."""
    message, context = request(unique("push")), unique("context")
    message.message.context_id = context
    message.configuration.task_push_notification_config.url = "https://hooks.example/"
    async with (
        running_grpc_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, binding=binding) as a2a,
    ):
        task = await completed(a2a)
        acts: tuple[Act, ...] = (create_config, read_config, delete_config, list_configs)
        for act in acts:
            with pytest.raises(PushNotificationNotSupportedError):
                await act(a2a, task.id)
        with pytest.raises(PushNotificationNotSupportedError):
            await anext(a2a.send_message(message))
        listed = await a2a.list_tasks(pb.ListTasksRequest(context_id=context))
        card = (await gateway.http.http.get(".well-known/agent-card.json")).json()
    assert listed.total_size == 0
    assert not card["capabilities"].get("pushNotifications")
