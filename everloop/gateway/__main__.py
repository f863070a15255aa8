"""Run a gateway: `python -m everloop.gateway`."""

from everloop.runtime.lean import freeze_startup  # isort: skip -- it loads libraries before they load more

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
import uvloop
from pydantic import ValidationError
from starlette.applications import Starlette
from temporalio.client import Plugin

from everloop.agents.errors import AgentError
from everloop.agents.registry import AgentRegistry, AgentSettings, load_agents
from everloop.gateway.app import build_app
from everloop.gateway.auth.access import AccessControl, RequestLimits
from everloop.gateway.auth.auth_settings import AuthSettings, make_authenticator
from everloop.gateway.cards.signing import CardKeySettings, load_card_key
from everloop.gateway.http.server import GatewayServer, listen
from everloop.gateway.operations.push import make_push
from everloop.gateway.settings import Attachments, GatewaySettings, Stores
from everloop.runtime.environment import StartError, allow_files, check_environment, explain, report_unknown
from everloop.runtime.redis import StoreSettings, check_redis, connect_redis
from everloop.runtime.telemetry.setup import configure_telemetry
from everloop.runtime.temporal.temporal_connection import check_search_attributes, connect_temporal
from everloop.stores.artifacts.artifact_store import ArtifactSettings, make_artifacts
from everloop.stores.artifacts.schedule_files import make_schedule_files
from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.push.configs import PushConfigs
from everloop.stores.push.deliveries import NotifyingTaskViews, PushDeliveries, PushSettings
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.quotas import LimitSettings, Quotas
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts

OWN_FILES = 240
"""Files of a gateway besides its connections, with some to spare. Of the 10,240 of macOS this leaves as
many as the default number of streams."""

GRPC_SHARE = 4
"""One in this many files may be for connections of gRPC, each of which has many streams. More are closed at
once, so that unauthenticated clients cannot use all of them."""

_log = structlog.get_logger()


@asynccontextmanager
async def opened_app(
    settings: GatewaySettings,
    agents: AgentRegistry,
    plugins: Sequence[Plugin] = (),
    *,
    measures: bool = False,
) -> AsyncGenerator[tuple[Starlette, AccessControl]]:
    """Connect, and yield the application and its access control. `plugins` are those of Temporal's client."""
    # The complete environment is read before any connection.
    retention, push_settings, artifact_settings = RetentionSettings(), PushSettings(), ArtifactSettings()
    blob_settings, limit_settings, redis_url = BlobSettings(), LimitSettings(), StoreSettings().redis_url
    authenticator = make_authenticator(AuthSettings(), settings.host)
    card_key = load_card_key(CardKeySettings())
    async with AsyncExitStack() as opened:
        redis = await opened.enter_async_context(connect_redis(redis_url))
        for warning in await check_redis(redis):
            _log.warning(warning)
        blobs = await opened.enter_async_context(opened_blobs(blob_settings, redis))
        client = await connect_temporal(plugins, blobs)
        await check_search_attributes(client)
        configs = PushConfigs(redis)
        notify = PushDeliveries(client, configs, settings.task_queue).notify
        views = NotifyingTaskViews(redis, configs, notify, retention)
        stores = Stores(
            views,
            Secrets(redis),
            make_artifacts(artifact_settings, redis, blobs, views.retention),
            Transcripts(redis, ttl=retention.transcript_ttl),
            link_seconds=blob_settings.s3_presigned,
            redis=redis,
            blobs=blobs,
            conversations=Conversations(redis),
        )
        quotas = Quotas(redis)
        access = AccessControl(authenticator, RequestLimits(limit_settings, quotas))
        push = make_push(push_settings, configs, notify, settings.url)
        app = build_app(
            settings,
            client,
            stores,
            agents,
            Attachments(
                make_schedule_files(artifact_settings, redis, blobs, views.retention),
                ScheduleWebhooks(redis, configs),
                quotas,
            ),
            access=access,
            push=push,
            card_key=card_key,
            measures=measures,
        )
        yield app, access


async def run(
    settings: GatewaySettings, agents: AgentRegistry, inherited: socket.socket | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, then let open requests end within the grace period.

    `inherited`: the socket to serve on, which other processes may share; default: one of its own. With
    it SIGHUP leaves new requests to the others, and gives open ones the grace period to end.
    """
    telemetry = configure_telemetry("everloop-gateway")
    try:
        async with AsyncExitStack() as opened:
            listener = opened.enter_context(inherited or listen(settings))
            measures = telemetry.metrics is not None
            app, access = await opened.enter_async_context(
                opened_app(settings, agents, telemetry.plugins, measures=measures)
            )
            stops, connections = [telemetry.stopping], _connections(settings)
            if settings.grpc_port is not None:
                from everloop.gateway.bindings.grpc import GrpcServer  # noqa: PLC0415 -- 9 MiB, for gRPC only
                from everloop.gateway.bindings.grpc_front import FILES  # noqa: PLC0415 -- likewise

                of_grpc = max(connections // GRPC_SHARE // FILES, 1)
                connections -= of_grpc * FILES
                grpc_server = GrpcServer(settings, access, connections=of_grpc)
                await grpc_server.start(app.state.handler)
                opened.push_async_callback(grpc_server.stopped)
                stops.append(grpc_server.stop)
            server = GatewayServer(app, settings, connections)
            _on_signals(*stops, server.stop)
            if inherited:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.leave)
            freeze_startup()
            telemetry.ready()
            served = [agent.id for agent in agents]
            _log.info("gateway ready", url=settings.url, grpc=settings.grpc_address, agents=served)
            await server.serve(sockets=[listener])
        _log.info("gateway stopped")
    finally:
        telemetry.shutdown()


def _connections(settings: GatewaySettings) -> int:
    """Return the maximum number of connections, besides the process's own files and connections."""
    files = allow_files()
    connections = max(files - OWN_FILES, 1)
    if connections < settings.max_streams:
        _log.warning(
            f"this process may open {files:,} files, which is too few for {settings.max_streams:,} streams "
            "(EVERLOOP_MAX_STREAMS); raise its limit (ulimit -n), or lower the setting",
            connections=connections,
        )
    return connections


def _on_signals(*stops: Callable[[], None]) -> None:
    """Stop each server in turn on SIGTERM and SIGINT."""

    def stop() -> None:
        for each in stops:
            each()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def main(listener: socket.socket | None = None) -> int:
    """Run a gateway and return the exit code of the process. An error at start is reported on one line."""
    report_unknown("gateway")
    try:
        check_environment()
        uvloop.run(run(GatewaySettings(), load_agents(AgentSettings().agents), listener))
    except (AgentError, StartError) as error:
        sys.stderr.write(f"gateway: {error}\n")
        return 1
    except ValidationError as error:
        sys.stderr.write(f"gateway: wrong setting: {explain(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    # Temporal's native threads may abort an interpreter during its shutdown (exit code 134).
    os._exit(exit_code)
