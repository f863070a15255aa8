"""Composition root of the worker process: settings → clients → ports → Worker. See `worker.py --help`."""

from everloop.runtime.lean import freeze_startup  # isort: skip -- it loads libraries before they load more

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import structlog
import uvloop
from pydantic import ValidationError
from redis.asyncio import Redis
from temporalio.client import Client, Plugin
from temporalio.service import RPCError
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker

from everloop.activities.cached_transcripts import CachedTranscripts
from everloop.activities.conversation.conversation_memory import RememberedConversation
from everloop.activities.model.clients import Clients, check_agents, misspelt_models
from everloop.activities.model.model_call import ModelCalls
from everloop.activities.model.models import Models
from everloop.activities.narrator.narrator import Narrator
from everloop.activities.publish import ViewPublisher
from everloop.activities.push.delivery import PushDelivering, Webhooks
from everloop.activities.push.feed import TaskWorkflows
from everloop.activities.scheduled_tasks import ScheduledTasks
from everloop.activities.store_deletion import StoreDeletion
from everloop.activities.store_housekeeping import StoreHousekeeping
from everloop.activities.telemetry import ActivityTasks, ContentSettings, begin_counters
from everloop.activities.tools.agent_catalogue import AgentCatalogue
from everloop.activities.tools.tool_call import AgentTools
from everloop.agents.errors import AgentError
from everloop.agents.registry import AgentRegistry, AgentSettings, load_agents
from everloop.models.catalogue import Catalogue, ModelsSettings
from everloop.runtime.blobs import Blobs
from everloop.runtime.environment import (
    StartError,
    allow_files,
    check_environment,
    explain,
    hide_environment,
    report_unknown,
)
from everloop.runtime.redis import StoreSettings, check_redis, connect_redis
from everloop.runtime.telemetry.logs import exception_fields
from everloop.runtime.telemetry.setup import configure_logs, configure_telemetry
from everloop.runtime.telemetry.telemetry_settings import TelemetrySettings
from everloop.runtime.temporal.describe import namespace_retention
from everloop.runtime.temporal.housekeeping_schedule import ensure_housekeeping
from everloop.runtime.temporal.temporal_connection import (
    NAMESPACE_TIMEOUT,
    TemporalUnreachableError,
    connect_worker,
)
from everloop.runtime.user_code import error_kind, translate_base_exceptions
from everloop.stores.artifacts.artifact_store import ArtifactSettings, make_artifacts
from everloop.stores.artifacts.schedule_files import make_schedule_files
from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.providers import ProviderGates
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.deliveries import NotifyingTaskViews, PushDeliveries, PushSettings
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import LimitSettings, Quotas
from everloop.stores.retention.users import announce_user
from everloop.stores.secrets import Secrets
from everloop.stores.token_counts import TokenSettings, token_counter
from everloop.stores.tool_records import ToolRecords, ToolResults
from everloop.stores.transcripts import Transcripts
from everloop.version import __version__
from everloop.workers.activity_queues import WorkerPorts, calls_of, queues_named_by, report_queues
from everloop.workers.eviction import EVICT_AFTER, ParkedTaskEviction
from everloop.workers.processes import WorkerProcesses
from everloop.workers.settings import QueueNameError, WorkerArguments, WorkerSettings, parse_arguments
from everloop.workers.shutdown import RunningActivities
from everloop.workflows.agent_task import AgentTask
from everloop.workflows.contract import names
from everloop.workflows.deletion import DeletionWorkflow
from everloop.workflows.housekeeping import Housekeeping
from everloop.workflows.push_delivery import PushDelivery

CANCELLATION_LATENCY = timedelta(seconds=1)
"""Interval at which heartbeats reach Temporal, and so the delay until a cancelled call is notified."""

LOST_WORKER_TIMEOUT = timedelta(seconds=5)
"""How long a step of a task waits for the worker that caches the task; then any worker takes it. A gateway
gives workers twice as long to accept a message, so that clients do not notice a dead worker."""

_log = structlog.get_logger()


def build_workers(
    client: Client,
    ports: WorkerPorts,
    settings: WorkerSettings,
    queues: Sequence[str] = names.WORKER_QUEUES,
    *interceptors: Interceptor,
) -> list[Worker]:
    """Wire implementations to ports, a worker for each queue; tests pass fakes.

    `queues` are kinds (`names.WORKER_QUEUES`), or the names of queues that agents or tools have of their own.
    """
    return [
        _worker(client, queue, ports, settings, interceptors) for queue in queues if calls_of(queue, ports)
    ]


def _workflows(ports: WorkerPorts) -> list[type]:
    usual = [AgentTask, DeletionWorkflow, Housekeeping]
    return [*usual, PushDelivery] if ports.push else usual


def _worker(
    client: Client,
    queue: str,
    ports: WorkerPorts,
    settings: WorkerSettings,
    interceptors: Sequence[Interceptor],
) -> Worker:
    return Worker(
        client,
        task_queue=settings.queue_named(queue),
        workflows=_workflows(ports) if queue == names.WORKFLOWS_QUEUE else [],
        activities=calls_of(queue, ports),
        interceptors=[ActivityTasks(), *interceptors],
        workflow_runner=UnsandboxedWorkflowRunner(),  # ADR 19
        max_cached_workflows=settings.max_cached_workflows,
        tuner=settings.tuner(queue),
        workflow_task_poller_behavior=settings.pollers,
        activity_task_poller_behavior=settings.pollers,
        max_task_queue_activities_per_second=settings.queue_rates.get(queue),
        sticky_queue_schedule_to_start_timeout=LOST_WORKER_TIMEOUT,
        graceful_shutdown_timeout=settings.grace_of(queue),
        default_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        max_heartbeat_throttle_interval=CANCELLATION_LATENCY,
        deployment_config=settings.versioning,
        # Six events of each iteration name it. The SDK's own is a hash of all code, read for half a second.
        build_id=None if settings.versioning else __version__,
    )


@asynccontextmanager
async def running_workers(
    client: Client,
    ports: WorkerPorts,
    settings: WorkerSettings,
    queues: Sequence[str] = names.WORKER_QUEUES,
    *,
    evict_after: timedelta = EVICT_AFTER,
) -> AsyncGenerator[None]:
    """Run the workers until the block ends; then stop all at once, each within the grace period of its calls.

    `evict_after` is that of `ParkedTaskEviction`.

    Raises:
        TemporalUnreachableError: Temporal or its namespace became unavailable before the workers had begun.
    """
    eviction, running = ParkedTaskEviction(evict_after), RunningActivities()
    workers = build_workers(client, ports, settings, queues, eviction, running)
    evicting = asyncio.create_task(eviction.run(workers))
    runs = asyncio.gather(*(worker.run() for worker in workers))
    block, is_left = asyncio.current_task(), False

    def end_block(runs: asyncio.Future[list[None]]) -> None:
        if runs.exception() and block and not is_left:
            block.cancel()

    runs.add_done_callback(end_block)  # once, however many workers fail
    try:
        yield
    except asyncio.CancelledError:
        if not (block and runs.done() and runs.exception()):
            raise
        block.uncancel()
    finally:
        is_left = True
        evicting.cancel()
        cancelling = asyncio.create_task(running.cancel_after(timedelta(seconds=settings.shutdown_grace)))
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        cancelling.cancel()
    try:
        await runs
    except RuntimeError as error:
        # The SDK asks for the namespace once more, in the background, and has no other type for this.
        if not str(error).startswith("Worker validation failed"):
            raise
        raise TemporalUnreachableError(
            f"the worker could not begin: {error}. "
            f"Start it again when Temporal answers for {client.namespace!r}"
        ) from error


@asynccontextmanager
async def _checked_redis() -> AsyncGenerator[Redis]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        for warning in await check_redis(redis):
            _log.warning(warning)
        yield redis


@dataclass(frozen=True)
class WorkerServers:
    """Clients of the servers that a worker uses."""

    redis: Redis
    blobs: Blobs
    clients: Clients
    temporal: Client


@asynccontextmanager
async def _connected(plugins: Sequence[Plugin]) -> AsyncGenerator[WorkerServers]:
    async with (
        _checked_redis() as redis,
        opened_blobs(BlobSettings(), redis) as blobs,
        aclosing(Clients()) as clients,
    ):
        yield WorkerServers(redis, blobs, clients, await connect_worker(plugins, blobs))


def _wire(
    servers: WorkerServers, agents: AgentRegistry, settings: WorkerSettings, catalogue: Catalogue
) -> WorkerPorts:
    redis, retention = servers.redis, RetentionSettings()
    content = ContentSettings().is_captured
    models = Models(catalogue, servers.clients, ProviderGates(redis), captures_content=content)
    configs = PushConfigs(redis)
    deliveries = PushDeliveries(servers.temporal, configs, settings.task_queue)
    views = NotifyingTaskViews(redis, configs, deliveries.notify, retention)
    transcripts, secrets = Transcripts(redis, ttl=retention.transcript_ttl), Secrets(redis)
    outcome_ttl = retention.transcript_ttl  # history restores both
    records = ToolRecords(redis, ttl=retention.tool_record_ttl, outcome_ttl=outcome_ttl)
    artifacts = make_artifacts(ArtifactSettings(), redis, servers.blobs, views.retention)
    schedule_files = make_schedule_files(ArtifactSettings(), redis, servers.blobs, views.retention)
    tokens = token_counter(TokenSettings())
    conversations = Conversations(redis, ttl=retention.conversation_ttl, count_tokens=tokens)
    conversation = RememberedConversation(conversations, transcripts, models, records)
    webhooks = ScheduleWebhooks(redis, configs)
    return WorkerPorts(
        model=ModelCalls(models, agents, views, transcripts, artifacts, records),
        tools=AgentTools(
            agents,
            views,
            transcripts,
            records,
            secrets,
            artifacts,
            threads=settings.max_concurrent_activities,
            captures_content=content,
            cached=ToolResults(redis),
        ),
        transcript=CachedTranscripts(transcripts, records),
        publish=ViewPublisher(views, artifacts, conversation),
        agents=AgentCatalogue(agents, views, transcripts, records),
        context=conversation,
        narrator=Narrator(models, views, records),
        housekeeping=StoreHousekeeping(
            redis, servers.blobs, servers.temporal, settings.task_queue, retention, BlobSettings().blob_ttl
        ),
        deletion=StoreDeletion(redis, servers.blobs, servers.temporal, settings.task_queue, views, webhooks),
        schedules=ScheduledTasks(schedule_files, webhooks, Quotas(redis), LimitSettings()),
        push=PushDelivering(
            configs,
            views,
            TaskWorkflows(servers.temporal, artifacts, views.max_bytes),
            Webhooks(PushSettings().policy),
            records,
        ),
    )


@asynccontextmanager
async def closing_plugins(agents: AgentRegistry) -> AsyncGenerator[None]:
    """Close the plugins after their last use."""
    try:
        yield
    finally:
        for plugin in agents.plugins:
            try:
                with translate_base_exceptions():
                    await plugin.close()
            except Exception as error:  # noqa: BLE001 -- it is the user's code, and the next one is to close too
                _log.warning("plugin not closed", plugin=plugin.name, error_type=error_kind(error))


@asynccontextmanager
async def working(
    agents: AgentRegistry,
    queues: Sequence[str],
    settings: WorkerSettings,
    catalogue: Catalogue,
    plugins: Sequence[Plugin] = (),
) -> AsyncGenerator[WorkerServers]:
    """Connect, and work until the block ends. `plugins` belong to Temporal's client."""
    async with _connected(plugins) as servers:
        ports = _wire(servers, agents, settings, catalogue)
        async with closing_plugins(agents), running_workers(servers.temporal, ports, settings, queues):
            yield servers


async def _risks_of_resets(client: Client) -> list[str]:
    try:
        retention = await namespace_retention(client, rpc_timeout=NAMESPACE_TIMEOUT)
    except RPCError:
        return []  # denied, as with some keys of Temporal Cloud, or no answer now
    risk = RetentionSettings().risk_of_resets(retention)
    return [risk] if risk else []


async def run(agents: AgentRegistry, queues: Sequence[str]) -> None:
    """Work until SIGTERM or SIGINT, then let running calls end within the grace period."""
    settings, models = WorkerSettings(), ModelsSettings()
    catalogue = Catalogue.load(models.file, models.model, os.environ)
    try:
        check_agents(catalogue, agents)
    except StartError as error:
        whose = (
            "; it is the demo agent, because EVERLOOP_AGENTS names none" if AgentSettings().is_default else ""
        )
        raise StartError(f"{error}{whose}") from None
    settings.check_names({*queues, *queues_named_by(agents)})
    telemetry = configure_telemetry("everloop-worker")
    stopping = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    try:
        async with working(agents, queues, settings, catalogue, telemetry.plugins) as servers:
            if names.WORKFLOWS_QUEUE in queues:
                await announce_user(servers.temporal, servers.blobs, settings.task_queue)
                await ensure_housekeeping(servers.temporal, settings.task_queue)
            risks = await _risks_of_resets(servers.temporal)
            for warning in [*agents.missed, *misspelt_models(catalogue, agents), *risks]:
                _log.warning(warning)
            report_queues(agents, queues, settings)
            begin_counters([agent.id for agent in agents])
            freeze_startup()
            telemetry.ready()
            _log.info(
                "worker ready",
                task_queue=settings.task_queue,
                queues=list(queues),
                agents=[a.id for a in agents],
                models_file=str(models.file) if models.file else None,
                prices_of=str(catalogue.date),
            )
            await stopping.wait()
            _log.info("worker stops", grace=settings.shutdown_grace)
            telemetry.stopping()
        _log.info("worker stopped")
    finally:
        telemetry.shutdown()


def work(given: WorkerArguments) -> int:
    """Run a worker and return the exit code of the process; an error at the start is one line."""
    hide_environment()  # MCP servers are processes of the same user
    allow_files()
    if not given.is_child:
        report_unknown("worker")
    try:
        check_environment()
        if given.processes > 1:
            return uvloop.run(_run_processes(given))
        run_loop(run(load_agents(AgentSettings().agents), given.queues))
    except (AgentError, QueueNameError, StartError) as error:
        sys.stderr.write(f"worker: {error}\n")
        return 1
    except ValidationError as error:
        sys.stderr.write(f"worker: wrong setting: {explain(error)}\n")
        return 1
    return 0


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a worker to its end; end the process at once where user code exits past every boundary.

    That happens in callbacks of the event loop. Their process cannot end in order: it may wait for
    steps that the exit has skipped.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        main = runner.get_loop().create_task(work)
        try:
            runner.get_loop().run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            if main.done():  # Ctrl-C, before it had the signal in hand
                raise
            _log.critical("the worker ends: user code has ended its event loop", **exception_fields(error))
            sys.stderr.flush()
            os._exit(1)


async def _run_processes(given: WorkerArguments) -> int:
    settings = TelemetrySettings()
    configure_logs(settings.log_level)
    command = [
        *(sys.executable, "-m", "everloop.worker"),
        "--queues",
        ",".join(given.queues),
        "--child",
    ]
    return await WorkerProcesses(command, given.processes, settings.address).run()


def main() -> int:
    """Run a worker of all queues in this process, and return its exit code."""
    return work(WorkerArguments(names.WORKER_QUEUES, 1))


def run_and_exit() -> NoReturn:
    """Run a worker with the arguments of this process, and end the process."""
    exit_code = work(parse_arguments(sys.argv[1:]))
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)


if __name__ == "__main__":
    run_and_exit()
