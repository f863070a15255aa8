"""Run a gateway: `python -m everloop.gateway`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
import uvloop
from pydantic import ValidationError
from redis.asyncio import Redis
from starlette.applications import Starlette
from temporalio.client import Client

from everloop.agents.errors import AgentError
from everloop.agents.registry import AgentRegistry, AgentSettings, load_agents
from everloop.gateway.app import build_app
from everloop.gateway.auth.access import AccessControl, Authenticator, LimitSettings, make_request_limits
from everloop.gateway.auth.settings import AuthSettings, AuthSettingsError, make_authenticator
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.cards.signing import CardKey, CardKeyError, CardKeySettings, load_card_key
from everloop.gateway.operations.push import make_push, notifier
from everloop.gateway.operator.health import Gauges, Probe
from everloop.gateway.server import AddressInUseError, GatewayServer, listen
from everloop.gateway.settings import GatewaySettings, Stores
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.blobs import Blobs, BlobsUnfitError
from everloop.runtime.redis import RedisUnfitError, StoreSettings, cancel, check_redis, connect_redis
from everloop.runtime.settings import explain, report_unknown
from everloop.runtime.telemetry.metrics import MetricsAddressError
from everloop.runtime.telemetry.setup import Telemetry, configure_telemetry
from everloop.runtime.temporal.connection import TemporalUnreachableError, connect_temporal
from everloop.stores.artifacts.settings import ArtifactSettings, make_artifacts
from everloop.stores.blobs.settings import BlobSettings, opened_blobs
from everloop.stores.push.configs import RedisPushConfigs
from everloop.stores.push.deliveries import PushDeliveries
from everloop.stores.push.notifying import NotifyingTaskViews
from everloop.stores.push.settings import PushSettings
from everloop.stores.retention import RetentionSettings
from everloop.stores.secrets import RedisSecrets
from everloop.stores.transcripts import RedisTranscripts
from everloop.stores.views.redis import RedisTaskViews

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Given:
    """What the environment says besides the gateway's own settings; all of it is read before we connect."""

    blobs: BlobSettings
    artifacts: ArtifactSettings
    retention: RetentionSettings
    push: PushSettings
    limits: LimitSettings
    authenticator: Authenticator
    card_key: CardKey | None


@dataclass(frozen=True)
class _Servers:
    redis: Redis
    blobs: Blobs
    temporal: Client


def _read_environment(settings: GatewaySettings) -> _Given:
    return _Given(
        BlobSettings(),
        ArtifactSettings(),
        RetentionSettings(),
        PushSettings(),
        LimitSettings(),
        make_authenticator(AuthSettings(), settings.host),
        load_card_key(CardKeySettings()),
    )


@asynccontextmanager
async def _checked_redis() -> AsyncGenerator[Redis]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        for warning in await check_redis(redis):
            _log.warning(warning)
        yield redis


@asynccontextmanager
async def _connected(given: _Given, telemetry: Telemetry) -> AsyncGenerator[_Servers]:
    async with _checked_redis() as redis, opened_blobs(given.blobs, redis) as blobs:
        yield _Servers(redis, blobs, await connect_temporal(telemetry.plugins, blobs))


def _wire(
    servers: _Servers, given: _Given, settings: GatewaySettings, agents: AgentRegistry
) -> tuple[Starlette, AccessControl]:
    redis, blobs, client = servers.redis, servers.blobs, servers.temporal
    kept, configs = given.retention, RedisPushConfigs(redis)
    shown = RedisTaskViews(redis, ttl=kept.task_ttl, max_bytes=kept.max_task_bytes)
    notify = notifier(PushDeliveries(client, configs, settings.task_queue))
    stores = Stores(
        NotifyingTaskViews(shown, configs, notify),
        RedisSecrets(redis),
        make_artifacts(given.artifacts, redis, blobs, shown),
        RedisTranscripts(redis, ttl=given.retention.transcript_ttl),
        link_seconds=given.blobs.s3_presigned,
    )
    access = AccessControl(given.authenticator, make_request_limits(given.limits, redis))
    push = make_push(given.push, configs, notify, settings.url)
    app = build_app(settings, client, stores, agents, access=access, push=push, card_key=given.card_key)
    return app, access


async def run(settings: GatewaySettings, agents: AgentRegistry) -> None:
    """Serve until SIGTERM or SIGINT, then let open requests end within the grace period."""
    telemetry = configure_telemetry("everloop-gateway")
    given = _read_environment(settings)
    try:
        with listen(settings) as listener:
            async with _connected(given, telemetry) as servers:
                app, access = _wire(servers, given, settings, agents)
                async with (
                    _asking_gauges(servers, settings, agents, telemetry),
                    _serving_grpc(settings, access, app) as stop_grpc,
                ):
                    server = GatewayServer(app, settings)
                    _on_signals(telemetry.stopping, stop_grpc, server.stop)
                    telemetry.ready()
                    _log.info(
                        "gateway ready",
                        url=settings.url,
                        grpc=settings.grpc_address,
                        agents=[agent.id for agent in agents],
                    )
                    await server.serve(sockets=[listener])
        _log.info("gateway stopped")
    finally:
        telemetry.shutdown()


@asynccontextmanager
async def _asking_gauges(
    servers: _Servers, settings: GatewaySettings, agents: AgentRegistry, telemetry: Telemetry
) -> AsyncGenerator[None]:
    """Keep gauges up to date, if anybody reads metrics."""
    if telemetry.metrics is None:
        yield
        return
    temporal, redis = Tasks(servers.temporal, settings.task_queue).check, RedisTaskViews(servers.redis)
    probes: dict[str, Probe] = {"temporal": temporal, "redis": lambda: redis.load("")}
    asking = asyncio.create_task(Gauges(servers.temporal, (agent.id for agent in agents), probes).run())
    try:
        yield
    finally:
        await cancel(asking)


@asynccontextmanager
async def _serving_grpc(
    settings: GatewaySettings, access: AccessControl, app: Starlette
) -> AsyncGenerator[Callable[[], None]]:
    """Serve gRPC if it is wanted, and yield what ends it; at the end wait until no call runs."""
    if settings.grpc_port is None:
        yield _nothing
        return
    server = GrpcServer(settings, access)
    await server.start(app.state.handler)
    try:
        yield server.stop
    finally:
        await server.stopped()


def _nothing() -> None:
    pass


def _on_signals(*stops: Callable[[], None]) -> None:
    """Let SIGTERM and SIGINT stop each server in turn."""

    def stop() -> None:
        for each in stops:
            each()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def main() -> int:
    """Run a gateway and return the exit code of the process; what stops it at start is one line."""
    report_unknown("gateway")
    try:
        uvloop.run(run(GatewaySettings(), load_agents(AgentSettings().agents)))
    except (
        AgentError,
        AddressInUseError,
        AuthSettingsError,
        BlobsUnfitError,
        CardKeyError,
        MetricsAddressError,
        RedisUnfitError,
        TemporalUnreachableError,
    ) as error:
        sys.stderr.write(f"gateway: {error}\n")
        return 1
    except ValidationError as error:
        sys.stderr.write(f"gateway: wrong setting: {explain(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter that tears itself down (exit code 134).
    os._exit(exit_code)
