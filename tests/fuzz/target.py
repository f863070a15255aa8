"""The target of the fuzzers: one gateway on all bindings whose tasks have no activities."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.operations.push import PushOperations
from everloop.gateway.settings import GatewaySettings
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.deliveries import NotifyingTaskViews, PushDeliveries
from tests.gateway.harness import RunningGateway, running_gateway, stand_in_worker, unique
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED

FUZZ = settings(
    derandomize=True,  # the same examples in every run
    database=None,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)

HOOK = "http://127.0.0.1:1/hook"

CONFIG = "c1"


@dataclass(frozen=True)
class Target:
    """A gateway, a channel to it, and a task that works for ever and has a push config `CONFIG`."""

    gateway: RunningGateway
    channel: grpc.aio.Channel
    task_id: str

    async def is_well(self) -> bool:
        """True if it still serves."""
        answer = await self.gateway.call("GetTask", {"id": self.task_id})
        return answer.json()["result"]["id"] == self.task_id


@asynccontextmanager
async def running_target(client: Client, redis: Redis) -> AsyncGenerator[Target]:
    """Serve until the block ends."""
    queue, configs = unique("fuzz"), PushConfigs(redis)
    notify = PushDeliveries(client, configs, unique("nobody")).notify
    views = NotifyingTaskViews(redis, configs, notify)
    push = PushOperations(configs, notify, LOOPBACK_ALLOWED, "https://agents.example.com/")
    server = GrpcServer(GatewaySettings(grpc_port=0, shutdown_grace=1), AccessControl())
    async with (
        stand_in_worker(client, queue),
        running_gateway(client, views, queue=queue, push=push, blocking_timeout=0.05) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        await server.start(gateway.app.state.handler)
        try:
            yield Target(gateway, channel, await _working_task(gateway))
        finally:
            await server.stopped()


async def _working_task(gateway: RunningGateway) -> str:
    message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    answer = await gateway.call("SendMessage", {"message": message})
    task_id: str = answer.json()["result"]["task"]["id"]
    config = {"taskId": task_id, "id": CONFIG, "url": HOOK}
    created = await gateway.call("CreateTaskPushNotificationConfig", config)
    assert "result" in created.json(), created.text
    return task_id
