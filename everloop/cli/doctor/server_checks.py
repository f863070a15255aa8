"""Checks of the servers that workers and gateways need: Temporal, Redis, blobs."""

import time
from datetime import UTC, datetime, timedelta
from typing import cast

from redis.asyncio import Redis
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.cli.doctor.findings import Finding, note, ok, problem
from everloop.runtime.redis import StoreSettings, check_redis, connect_redis
from everloop.runtime.temporal.describe import namespace_retention, problem_of_search_attributes
from everloop.runtime.temporal.queues import WORKFLOW, queue_state
from everloop.runtime.temporal.temporal_connection import connect_temporal
from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
from everloop.stores.keys import STORE_ID_KEY
from everloop.stores.lifetimes import RetentionSettings
from everloop.workers.settings import WorkerSettings
from everloop.workflows.contract.names import SEARCH_ATTRIBUTES

MOST_SKEW = 2.0
"""Greatest difference of clocks in seconds: displayed times, and expiries of tokens, come from several."""

_RPC_TIMEOUT = timedelta(seconds=5)


async def look_at_temporal() -> list[Finding]:
    """Check the server, the namespace, its search attributes, and the workers."""
    began = time.monotonic()
    client = await connect_temporal()
    system = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_RPC_TIMEOUT)
    took = (time.monotonic() - began) * 1000
    where = client.service_client.config.target_host
    found = [
        ok("temporal", f"server {system.server_version or 'of unknown version'} at {where}, {took:.0f} ms")
    ]
    for look in (_look_at_namespace, _look_at_attributes, _look_at_workers):
        try:
            found.append(await look(client))
        except RPCError as error:
            name = look.__name__.removeprefix("_look_at_")
            found.append(note(name, f"not looked at: Temporal says {error.status.name}, {error.message}"))
    return found


async def _look_at_namespace(client: Client) -> Finding:
    retention = await namespace_retention(client, rpc_timeout=_RPC_TIMEOUT)
    said = f"{client.namespace!r}; what has ended is kept for {_days(retention)}"
    if risk := RetentionSettings().risk_of_resets(retention):
        return note("namespace", f"{said}; {risk}")
    return ok("namespace", said)


async def _look_at_attributes(client: Client) -> Finding:
    if wrong := await problem_of_search_attributes(client, rpc_timeout=_RPC_TIMEOUT):
        return problem("search attributes", wrong)
    return ok("search attributes", ", ".join(key.name for key in SEARCH_ATTRIBUTES))


async def _look_at_workers(client: Client) -> Finding:
    queue = WorkerSettings().task_queue
    state = await queue_state(client, queue, WORKFLOW, rpc_timeout=_RPC_TIMEOUT)
    names = {poller.identity for poller in state.pollers}
    if not names:
        return problem(
            "workers",
            f"no worker polls the queue {queue!r} (EVERLOOP_TASK_QUEUE), so tasks wait; start "
            "`everloop worker`",
        )
    return ok("workers", f"{len(names)} on the queue {queue!r}, seen within five minutes")


async def look_at_stores() -> list[Finding]:
    """Check Redis, its clock, and the blob store in use according to Redis."""
    url, settings = StoreSettings().redis_url, BlobSettings()
    async with connect_redis(url) as redis:
        warnings = await check_redis(redis)
        info = cast("dict[str, str]", await redis.info("server"))
        version = info.get("valkey_version") or info.get("redis_version") or "of unknown version"
        kind = "Valkey" if "valkey_version" in info else "Redis"
        found = [note("redis", warning) for warning in warnings]
        found += [ok("redis", f"{kind} {version}"), await _look_at_clock(redis)]
        return [*found, await _look_at_blobs(redis, settings)]


async def _look_at_clock(redis: Redis) -> Finding:
    seconds, micros = await redis.time()
    return clock_finding("Redis", seconds + micros / 1_000_000)


def clock_finding(whose: str, theirs: float) -> Finding:
    """Return the difference of this machine's clock from another one, which showed `theirs`."""
    apart = datetime.now(UTC).timestamp() - theirs
    if abs(apart) <= MOST_SKEW:
        return ok("clocks", f"this machine and {whose} agree within {max(abs(apart), 0.1):.1f} s")
    which = "ahead of" if apart > 0 else "behind"
    return problem(
        "clocks",
        f"this machine is {abs(apart):.0f} s {which} {whose}: times and the ends of tokens are wrong; "
        "let both follow NTP",
    )


async def _look_at_blobs(redis: Redis, settings: BlobSettings) -> Finding:
    if await redis.get(STORE_ID_KEY) is None:
        # A check would create one, perhaps in the wrong place.
        return note("blobs", "none yet; the first worker or gateway makes the store that its settings name")
    try:
        async with opened_blobs(settings, redis) as blobs:
            return ok("blobs", f"{blobs.location} takes blobs and gives them back")
    except Exception as error:  # noqa: BLE001 -- its error must not hide the other findings
        return problem("blobs", str(error))


def _days(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:.0f} day{'s' if days != 1 else ''}" if days >= 1 else f"{span / timedelta(hours=1):.0f} h"
