"""Push notification configs where the official client cannot reach: lists and deletions in both versions."""

from collections.abc import AsyncGenerator

import pytest_asyncio
from a2a.client import Client as A2AClient
from a2a.types import a2a_pb2 as pb
from temporalio.client import Client

from everloop.stores.views.interface import TaskViews
from tests.gateway.harness import PromptModel, RunningGateway, running_gateway, unique
from tests.gateway.push.remembered_push import RememberedPush
from tests.support.a2a_client import Answer, Binding, connected, request


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(
    client: Client, views: TaskViews, queue: str, model: PromptModel
) -> AsyncGenerator[RunningGateway]:
    async with running_gateway(client, views, queue=queue, push=RememberedPush()) as gateway:
        yield gateway


async def completed(a2a: A2AClient) -> pb.Task:
    """Return a task that has ended."""
    answer = await Answer().read(a2a.send_message(request(unique("done"))))
    return await a2a.get_task(pb.GetTaskRequest(id=answer.task_id))


async def test_push_configs_are_listed_and_deleted_in_the_new_version(served: RunningGateway) -> None:
    """On both bindings; deleting twice is no error."""
    bindings: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
    for binding in bindings:
        async with connected(served.url, binding=binding) as a2a:
            task = await completed(a2a)
            for name in ("a", "b"):
                config = pb.TaskPushNotificationConfig(task_id=task.id, id=name, url="https://hooks.example/")
                await a2a.create_task_push_notification_config(config)
            listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            assert [c.id for c in (await a2a.list_task_push_notification_configs(listing)).configs] == [
                "a",
                "b",
            ]
            for _ in range(2):
                await a2a.delete_task_push_notification_config(
                    pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="a")
                )
            assert [c.id for c in (await a2a.list_task_push_notification_configs(listing)).configs] == ["b"]


async def test_push_configs_are_listed_and_deleted_in_the_old_version(served: RunningGateway) -> None:
    """JSON-RPC answers a deletion with null, REST with {}; the id may stand beside the config."""
    async with connected(served.url) as a2a:
        task_id = (await completed(a2a)).id
    headers, configs = {"A2A-Version": "0.3"}, f"/v1/tasks/{task_id}/pushNotificationConfigs"
    hook = {"pushNotificationConfig": {"url": "https://hooks.example/"}}
    body = {"configId": "beside", "config": hook}
    created = await served.http.post(configs, json=body, headers=headers)
    assert created.json()["name"] == f"tasks/{task_id}/pushNotificationConfigs/beside"
    listed = (await served.http.get(configs, headers=headers)).json()["configs"]
    assert [each["name"] for each in listed] == [created.json()["name"]]
    for _ in range(2):
        deleted = await served.http.delete(f"{configs}/beside", headers=headers)
        assert (deleted.status_code, deleted.json()) == (200, {})
        params = {"id": task_id, "pushNotificationConfigId": "beside"}
        answer = (await served.call("tasks/pushNotificationConfig/delete", params, **headers)).json()
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert (await served.http.get(configs, headers=headers)).json() == {}
