"""Readiness of the processes of the local stack.

Temporal is checked through its HTTP API: a supervisor that never loads Temporal's client stays small.
"""

import asyncio
from datetime import datetime
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, Field
from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.local.servers import HTTP_NAME

PROBE_TIMEOUT = 2.0

_BY_NAME = {"Host": HTTP_NAME}


class _Poller(BaseModel):
    last_access_time: datetime = Field(alias="lastAccessTime")


class _TaskQueue(BaseModel):
    pollers: list[_Poller] = []


async def redis_answers(url: str) -> bool:
    """Whether PING succeeds. A server that still loads its file responds with an error."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT), Redis.from_url(url) as connection:
            return bool(await connection.ping())
    except (OSError, RedisError):  # a TimeoutError is an OSError
        return False


def probing_client() -> httpx2.AsyncClient:
    """Return the client for these checks. Proxies of the environment are for other machines."""
    return httpx2.AsyncClient(timeout=PROBE_TIMEOUT, trust_env=False)


async def http_answers(client: httpx2.AsyncClient, url: str, headers: dict[str, str] | None = None) -> bool:
    """Whether a GET succeeds."""
    try:
        response = await client.get(url, headers=headers)
    except httpx2.HTTPError:
        return False
    return response.is_success


async def temporal_answers(client: httpx2.AsyncClient, http_address: str) -> bool:
    """Whether the namespace `default` accepts queries for workflows."""
    return await http_answers(client, f"{_namespace(http_address)}/workflow-count", _BY_NAME)


async def worker_polls(client: httpx2.AsyncClient, http_address: str, task_queue: str, since: float) -> bool:
    """Whether a worker polled for workflows and for activities after a time, in seconds since the epoch.

    Temporal lists a stopped worker for minutes; the time distinguishes the new one from it.
    """
    url = f"{_namespace(http_address)}/task-queues/{quote(task_queue, safe='')}"
    for kind in ("WORKFLOW", "ACTIVITY"):
        try:
            response = await client.get(
                url, params={"taskQueueType": f"TASK_QUEUE_TYPE_{kind}"}, headers=_BY_NAME
            )
        except httpx2.HTTPError:
            return False
        if not response.is_success:
            return False
        pollers = _TaskQueue.model_validate_json(response.content).pollers
        if not any(poller.last_access_time.timestamp() > since for poller in pollers):
            return False
    return True


def _namespace(http_address: str) -> str:
    return f"http://{http_address}/api/v1/namespaces/default"
