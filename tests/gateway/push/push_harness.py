"""A gateway on all bindings with push notifications, and a worker that sends them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis
from temporalio.client import Client

from everloop.activities.publish import ViewPublisher
from everloop.activities.push.delivery import PushDelivering, Webhooks
from everloop.activities.push.feed import TaskWorkflows
from everloop.gateway.operations.push import PushOperations
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.deliveries import NotifyingTaskViews, PushDeliveries
from everloop.stores.tool_records import ToolRecords
from everloop.worker import WorkerPorts, WorkerSettings, running_workers
from tests.gateway.grpc_harness import GrpcGateway, running_grpc_gateway
from tests.gateway.harness import PromptModel, unique
from tests.support.fakes.ports import CountingTools, FixedAgents, RecordingContext, RecordingTranscripts
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED
from tests.support.stores import new_artifacts

PUBLIC_URL = "https://agents.example.com/"


@dataclass(frozen=True)
class PushHarness:
    """The gateway with push notifications, its worker and its model."""

    gateway: GrpcGateway
    model: PromptModel
    views: TaskViews
    configs: PushConfigs
    port: PushDelivering

    @property
    def url(self) -> str:
        return self.gateway.url


@asynccontextmanager
async def running_push_harness(client: Client, redis: Redis) -> AsyncGenerator[PushHarness]:
    """Serve until the block ends; webhooks on this machine are allowed."""
    queue, configs = unique("push"), PushConfigs(redis)
    notify = PushDeliveries(client, configs, queue).notify
    views = NotifyingTaskViews(redis, configs, notify)
    artifacts = new_artifacts(views)
    model = PromptModel(views)
    port = PushDelivering(
        configs, views, TaskWorkflows(client, artifacts), Webhooks(LOOPBACK_ALLOWED), ToolRecords(redis)
    )
    ports = WorkerPorts(
        model,
        CountingTools(),
        RecordingTranscripts(),
        ViewPublisher(views, artifacts),
        FixedAgents(),
        RecordingContext(),
        port,
    )
    push = PushOperations(configs, notify, LOOPBACK_ALLOWED, PUBLIC_URL)
    async with (
        running_workers(client, ports, WorkerSettings(task_queue=queue, shutdown_grace=0)),
        running_grpc_gateway(client, views, queue=queue, push=push) as gateway,
    ):
        yield PushHarness(gateway, model, views, configs, port)
