"""Composition root of the worker process: settings → clients → ports → Worker. Run it: `python worker.py`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import structlog
from openai import AsyncOpenAI
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.agents import AgentCatalogue
from activities.conversation import RememberedConversation
from activities.model import OpenAIModel
from activities.model_provider import ModelProvider
from activities.model_settings import ModelSettings, make_openai_client
from activities.narrator import Narrator
from activities.prices import Prices
from activities.publish import ViewPublisher
from activities.push_delivery import PushDelivering
from activities.push_tasks import TaskWorkflows
from activities.push_webhook import Webhooks
from activities.tools import AgentTools, ToolStores
from activities.transcript import CachedTranscripts
from agents.errors import AgentError
from agents.registry import AgentRegistry, AgentSettings, load_agents
from stores.artifact_settings import ArtifactSettings, make_artifacts
from stores.blob_settings import BlobSettings, opened_blobs
from stores.blobs import Blobs, BlobsUnfitError
from stores.notifying_task_views import NotifyingTaskViews
from stores.push_deliveries import PushDeliveries
from stores.redis_connection import RedisUnfitError, StoreSettings, check_redis, connect_redis
from stores.redis_conversations import RedisConversations
from stores.redis_push_configs import RedisPushConfigs
from stores.redis_secrets import RedisSecrets
from stores.redis_task_views import RedisTaskViews
from stores.redis_tool_records import RedisToolRecords
from stores.redis_transcripts import RedisTranscripts
from stores.settings_errors import explain
from stores.telemetry import Telemetry, configure_telemetry
from stores.temporal_connection import TemporalUnreachableError, connect_worker
from stores.token_counts import TokenSettings, token_counter
from stores.webhook_settings import PushSettings
from workflows.agent_task import AgentTask
from workflows.contract.names import DEFAULT_TASK_QUEUE, narrator_task_queue, push_task_queue
from workflows.contract.ports import (
    AgentPort,
    ContextPort,
    ModelPort,
    NarratorPort,
    PublishPort,
    PushPort,
    ToolPort,
    TranscriptPort,
)
from workflows.push_delivery import PushDelivery

CANCELLATION_LATENCY = timedelta(seconds=1)
"""How often heartbeats really reach Temporal, and so how soon a cancelled call hears of it."""

LOST_WORKER_TIMEOUT = timedelta(seconds=5)
"""How long a step of a task waits for the worker that keeps the task in memory; then any worker takes it. A
gateway gives workers twice as long to take a message in, so that no client notices a worker that died."""

MAX_CONCURRENT_DELIVERIES = 100
"""How many push notifications a worker posts at once; a webhook may take ten seconds for one."""

MAX_CONCURRENT_NARRATORS = 1000
"""How many tasks a worker narrates at once; further ones are told of later, or not at all."""

_log = structlog.get_logger()


class WorkerSettings(BaseSettings):
    """What this worker takes on (environment, prefix EVERLOOP_).

    `task_queue`: the same as the gateway's. `max_cached_workflows`: tasks kept in memory
    between their steps (default 1,000); others are replayed. `max_concurrent_activities`: model and tool
    calls at once (default 200). `shutdown_grace`: seconds that running calls get at SIGTERM (default 30).
    `build_id`: the version of the code, and of the agents, in the worker deployment `deployment` (default
    "everloop"); a task then ends on the build it began on. Default: none, every worker takes every task.
    """

    model_config = SettingsConfigDict(env_prefix="EVERLOOP_", frozen=True, hide_input_in_errors=True)

    task_queue: str = DEFAULT_TASK_QUEUE
    max_cached_workflows: int = Field(default=1000, ge=0)
    max_concurrent_activities: int = Field(default=200, ge=1)
    shutdown_grace: float = Field(default=30, ge=0)
    deployment: str = "everloop"
    build_id: str = ""

    @property
    def versioning(self) -> WorkerDeploymentConfig | None:
        """How Temporal tells this build from others; None if it has no id."""
        if not self.build_id:
            return None
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(self.deployment, self.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )


@dataclass(frozen=True)
class Ports:
    """One implementation for each port; without `push` nobody is notified, without `narrator` it is mute."""

    model: ModelPort
    tools: ToolPort
    transcript: TranscriptPort
    publish: PublishPort
    agents: AgentPort
    context: ContextPort
    push: PushPort | None = None
    narrator: NarratorPort | None = None


def build_worker(client: Client, ports: Ports, settings: WorkerSettings) -> Worker:
    """Wire implementations to ports; tests pass fakes."""
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=[AgentTask, PushDelivery] if ports.push else [AgentTask],
        activities=[
            ports.model.call_model,
            ports.model.compact_context,
            ports.tools.run_tool,
            ports.tools.store_result,
            ports.transcript.store_transcript,
            ports.publish.publish,
            ports.agents.load_agent,
            ports.agents.prepare_task,
            ports.agents.before_request,
            ports.agents.after_completion,
            ports.context.load_context,
            ports.context.save_context,
            ports.context.compact_conversation,
        ],
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_activities=settings.max_concurrent_activities,
        sticky_queue_schedule_to_start_timeout=LOST_WORKER_TIMEOUT,
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        default_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        max_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        deployment_config=settings.versioning,
    )


def build_push_worker(client: Client, push: PushPort, settings: WorkerSettings) -> Worker:
    """Wire what delivers notifications: on a queue and in places of its own."""
    return Worker(
        client,
        task_queue=push_task_queue(settings.task_queue),
        activities=[push.deliver_push],
        max_concurrent_activities=MAX_CONCURRENT_DELIVERIES,
        graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        deployment_config=settings.versioning,
    )


def build_narrator_worker(client: Client, narrator: NarratorPort, settings: WorkerSettings) -> Worker:
    """Wire what tells clients how far tasks are: each call lasts as long as its task."""
    return Worker(
        client,
        task_queue=narrator_task_queue(settings.task_queue),
        activities=[narrator.narrate],
        max_concurrent_activities=MAX_CONCURRENT_NARRATORS,
        default_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        max_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        deployment_config=settings.versioning,
    )


@asynccontextmanager
async def running_worker(client: Client, ports: Ports, settings: WorkerSettings) -> AsyncGenerator[None]:
    """Work until the block ends: on tasks, and on notifications if there is a port for them."""
    async with AsyncExitStack() as running:
        if ports.push:
            await running.enter_async_context(build_push_worker(client, ports.push, settings))
        if ports.narrator:
            await running.enter_async_context(build_narrator_worker(client, ports.narrator, settings))
        await running.enter_async_context(build_worker(client, ports, settings))
        yield


@asynccontextmanager
async def _checked_redis() -> AsyncGenerator[Redis]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        for warning in await check_redis(redis):
            _log.warning(warning)
        yield redis


@dataclass(frozen=True)
class _Servers:
    """What a worker talks to."""

    redis: Redis
    blobs: Blobs
    openai: AsyncOpenAI
    temporal: Client


@asynccontextmanager
async def _connected(models: ModelSettings, telemetry: Telemetry) -> AsyncGenerator[_Servers]:
    async with (
        _checked_redis() as redis,
        opened_blobs(BlobSettings(), redis) as blobs,
        make_openai_client(models) as openai,
    ):
        yield _Servers(redis, blobs, openai, await connect_worker(telemetry.plugins, blobs))


def _wire(servers: _Servers, agents: AgentRegistry, settings: WorkerSettings, models: ModelSettings) -> Ports:
    redis = servers.redis
    provider = ModelProvider(servers.openai, models.model, Prices(models.prices))
    configs, shown = RedisPushConfigs(redis), RedisTaskViews(redis)
    deliveries = PushDeliveries(servers.temporal, settings.task_queue)
    views = NotifyingTaskViews(shown, configs, deliveries.notify)
    transcripts, secrets = RedisTranscripts(redis), RedisSecrets(redis)
    artifacts = make_artifacts(ArtifactSettings(), redis, servers.blobs, shown)
    conversations = RedisConversations(redis, count_tokens=token_counter(TokenSettings()))
    conversation = RememberedConversation(conversations, transcripts, provider)
    return Ports(
        model=OpenAIModel(provider, agents, views, transcripts, artifacts),
        tools=AgentTools(
            agents,
            ToolStores(views, transcripts, RedisToolRecords(redis), secrets, artifacts),
            threads=settings.max_concurrent_activities,
        ),
        transcript=CachedTranscripts(transcripts),
        publish=ViewPublisher(views, secrets, artifacts, conversation),
        agents=AgentCatalogue(agents, views, transcripts),
        context=conversation,
        narrator=Narrator(provider, views),
        push=PushDelivering(
            configs, views, TaskWorkflows(servers.temporal, artifacts), Webhooks(PushSettings().policy)
        ),
    )


@asynccontextmanager
async def _closing_plugins(agents: AgentRegistry) -> AsyncGenerator[None]:
    """Let plugins close what they have opened, once nothing uses it any more."""
    try:
        yield
    finally:
        for plugin in agents.plugins:
            try:
                await plugin.close()
            except Exception as error:  # noqa: BLE001 -- it is the user's code, and the next one is to close too
                _log.warning("plugin not closed", plugin=plugin.name, error_type=type(error).__name__)


async def run(agents: AgentRegistry) -> None:
    """Work until SIGTERM or SIGINT, then let running calls end within the grace period."""
    settings, models = WorkerSettings(), ModelSettings()
    telemetry = configure_telemetry("everloop-worker")
    stopping = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    try:
        async with _connected(models, telemetry) as servers:
            ports = _wire(servers, agents, settings, models)
            async with _closing_plugins(agents), running_worker(servers.temporal, ports, settings):
                for warning in agents.missed:
                    _log.warning(warning)
                _log.info("worker ready", task_queue=settings.task_queue, agents=[a.id for a in agents])
                await stopping.wait()
            _log.info("worker stopped")
    finally:
        telemetry.shutdown()


def main() -> int:
    """Run a worker and return the exit code of the process; what stops it at start is one line."""
    try:
        asyncio.run(run(load_agents(AgentSettings().agents)))
    except (AgentError, BlobsUnfitError, RedisUnfitError, TemporalUnreachableError) as error:
        sys.stderr.write(f"worker: {error}\n")
        return 1
    except ValidationError as error:
        sys.stderr.write(f"worker: wrong setting: {explain(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)
