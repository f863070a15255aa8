"""Run a gateway: `python -m gateway`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis

from agents.errors import AgentError
from agents.registry import AgentRegistry, AgentSettings, load_agents
from gateway.app import build_app
from gateway.server import AddressInUseError, GatewayServer, listen
from gateway.settings import GatewaySettings
from gateway.stores import Stores
from stores.artifact_housekeeping import ArtifactHousekeeping
from stores.artifact_settings import ArtifactSettings, make_artifacts
from stores.blob_settings import BlobSettings, opened_blobs
from stores.blobs import BlobsUnfitError
from stores.redis_connection import RedisUnfitError, StoreSettings, check_redis, connect_redis
from stores.redis_secrets import RedisSecrets
from stores.redis_task_views import RedisTaskViews
from stores.settings_errors import explain
from stores.telemetry import configure_telemetry
from stores.temporal_connection import TemporalUnreachableError, connect_temporal

_log = structlog.get_logger()


@asynccontextmanager
async def _checked_redis() -> AsyncGenerator[Redis]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        for warning in await check_redis(redis):
            _log.warning(warning)
        yield redis


async def run(settings: GatewaySettings, agents: AgentRegistry) -> None:
    """Serve until SIGTERM or SIGINT, then let open requests end within the grace period."""
    telemetry = configure_telemetry("everloop-gateway")
    blob_settings, artifact_settings = BlobSettings(), ArtifactSettings()
    try:
        with listen(settings) as listener:
            async with (
                _checked_redis() as redis,
                opened_blobs(blob_settings, redis) as blobs,
            ):
                client = await connect_temporal(telemetry.plugins, blobs)
                views = RedisTaskViews(redis)
                stores = Stores(
                    views,
                    RedisSecrets(redis),
                    make_artifacts(artifact_settings, redis, blobs, views),
                    link_seconds=blob_settings.s3_presigned,
                    clean_up=ArtifactHousekeeping(redis, blobs).run_once,
                )
                app = build_app(settings, client, stores, agents)
                server = GatewayServer(app, settings)
                for number in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(number, server.stop)
                _log.info("gateway ready", url=settings.url, agents=[agent.id for agent in agents])
                await server.serve(sockets=[listener])
        _log.info("gateway stopped")
    finally:
        telemetry.shutdown()


def main() -> int:
    """Run a gateway and return the exit code of the process; what stops it at start is one line."""
    try:
        asyncio.run(run(GatewaySettings(), load_agents(AgentSettings().agents)))
    except (
        AgentError,
        AddressInUseError,
        BlobsUnfitError,
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
