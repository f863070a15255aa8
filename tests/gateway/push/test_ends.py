"""Ends that a gateway shows for a workflow: whoever is to be notified of them hears them."""

import asyncio
from collections.abc import Sequence

from temporalio.client import Client

from everloop.gateway.operations.push import notifier
from everloop.stores.push.configs import PushConfig
from everloop.stores.push.deliveries import NotifyingTaskViews, PushDeliveries
from everloop.workflows.contract.names import PUSH_WORKFLOW_TYPE
from everloop.workflows.contract.tasks import TaskState, TaskStatus
from tests.gateway.harness import running_gateway, scripted_worker, unique
from tests.gateway.tasks.silent_tasks import services, view_of
from tests.support.a2a_client import connected, request, send
from tests.support.memory.push_configs import MemoryPushConfigs
from tests.support.memory.task_views import MemoryTaskViews


class Deliveries(PushDeliveries):
    """Notes who was told; `client` may be replaced."""

    def __init__(self, client: Client, configs: MemoryPushConfigs) -> None:
        super().__init__(client, configs, unique("nobody"))
        self.told: list[str] = []

    async def notify(self, task_id: str, config_ids: Sequence[str]) -> None:
        await super().notify(task_id, config_ids)
        self.told.append(task_id)

    def use(self, client: Client) -> None:
        self._client = client


def a_config(task_id: str) -> PushConfig:
    return PushConfig(
        id="c", task_id=task_id, owner="owner", context_id="x", url="https://a", public_url="https://b"
    )


def refused(client: Client) -> Client:
    """A client for which Temporal starts nothing: its namespace is not there."""
    return Client(client.service_client, namespace=unique("nowhere"), data_converter=client.data_converter)


async def test_an_end_that_nobody_could_be_told_of_is_told_later(client: Client) -> None:
    """A terminated task is canceled: 503 while deliveries cannot be told, and told when they can."""
    inner, configs = MemoryTaskViews(), MemoryPushConfigs()
    deliveries = Deliveries(client, configs)
    views = NotifyingTaskViews(inner, configs, notifier(deliveries))
    queue, prompt, gate = unique("ends"), unique("held"), asyncio.Event()
    async with (
        scripted_worker(client, inner, queue) as model,
        running_gateway(client, views, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        model.scripts[prompt] = [gate]
        task = await send(a2a, request(prompt, return_immediately=True))
        await configs.put(a_config(task.id))
        await client.get_workflow_handle(task.id).terminate("gone")
        deliveries.use(refused(client))
        away = await gateway.call("CancelTask", {"id": task.id})
        before = await inner.state(task.id)
        deliveries.use(client)
        answer = await gateway.call("CancelTask", {"id": task.id})
        gate.set()

    assert (away.status_code, before is not None and before.is_terminal) == (503, False)
    assert "error" in answer.json()
    assert await inner.state(task.id) is TaskState.FAILED
    assert set(deliveries.told) == {task.id}
    assert len(deliveries.told) >= 2  # whoever looks at the task meanwhile tells it again
    delivery = await client.get_workflow_handle(f"{task.id}/push/c").describe()
    assert delivery.workflow_type == PUSH_WORKFLOW_TYPE
    await client.get_workflow_handle(delivery.id).terminate()


async def test_a_status_that_was_lost_is_told_when_the_view_is_put_right(client: Client) -> None:
    """Whoever is to be notified hears of it from the gateway that finds out."""
    inner, behind, configs = MemoryTaskViews(), MemoryTaskViews(), MemoryPushConfigs()
    deliveries = Deliveries(client, configs)
    views = NotifyingTaskViews(behind, configs, notifier(deliveries))
    queue, prompt, gate, asked = unique("lost"), unique("held"), asyncio.Event(), asyncio.Event()
    async with (
        scripted_worker(client, inner, queue) as model,
        running_gateway(client, inner, queue=queue) as gateway,
        connected(gateway.url, streaming=False) as a2a,
    ):
        model.scripts[prompt] = [asked.set, gate]
        task = await send(a2a, request(prompt, return_immediately=True))
        await asked.wait()
        shown = await view_of(inner, task.id)
        begun = TaskStatus(state=TaskState.SUBMITTED, at=shown.created_at)
        await behind.create(shown.model_copy(update={"status": begun, "version": 0, "run_id": ""}))
        await configs.put(a_config(task.id))
        await services(client, views, queue=queue).reconciler.reconcile(task.id)
        gate.set()
    assert await behind.state(task.id) is TaskState.WORKING
    assert deliveries.told
    await client.get_workflow_handle(f"{task.id}/push/c").terminate()
