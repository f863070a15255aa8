"""Leftovers of a run: work, processes, connections, keys, blobs, and resources of survivors."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import psutil
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.service import RPCError

from everloop.runtime.blobs import ARTIFACT_FOLDER
from everloop.runtime.encryption.cipher import NO_CIPHER
from everloop.runtime.redis import connect_redis, primaries
from everloop.runtime.temporal.describe import describe_raw
from everloop.stores.artifacts.record import ArtifactRecord
from everloop.stores.keys import (
    ARTIFACTS_LISTED_SINCE_KEY,
    CONVERSATIONS_KEY,
    DIRECTORY_KEY,
    EXPIRING_ARTIFACTS_KEY,
    LOCK_KEY,
    PENDING_BLOBS_KEY,
    RETENTIONS_KEY,
    STORE_ID_KEY,
)
from tests.chaos.census import Census, take_census
from tests.chaos.fleet import Fleet
from tests.support.servers.processes import redis_answers

CALM = 60.0
"""Seconds after which the resources of an idle process are within their limits."""

LAST_PAUSE = 600.0
"""The longest delay between two tries of a notification, in seconds (docs/protocol/push-notifications.md).

A webhook that was harmed repeatedly waits that long for the last one.
"""

_LISTS = (
    STORE_ID_KEY,
    DIRECTORY_KEY,
    LOCK_KEY,
    EXPIRING_ARTIFACTS_KEY,
    ARTIFACTS_LISTED_SINCE_KEY,
    PENDING_BLOBS_KEY,
    CONVERSATIONS_KEY,
    RETENTIONS_KEY,
)
"""Keys shared by all tasks, which may stay."""

_TASK = r"everloop:task:\{[^}]+\}[^:]*:(head|log|snapshot|transcript:.+|records|outcomes|push|registry|route)"
_KINDS = {
    "task": re.compile(_TASK),
    "artifact": re.compile(r"everloop:(artifact|artifact-tail|context):.+"),
    "conversation": re.compile(r"everloop:conversation:\{.+\}:\w+"),
    "owner": re.compile(r"everloop:owner:.+"),
    "provider": re.compile(r"everloop:provider:\{\w+\}(:calls|:failures|:tickets)?"),
    "reader": re.compile(r"everloop:reader:\w+:wake"),
}
"""Key patterns in the code. Secrets of clients are not among them: they are deleted with their task."""

_KEPT_UP = re.compile(r"everloop:owner:\{[^}]*\}:(tasks|contexts)")
"""Lists without an expiry: the housekeeping removes expired entries."""


_AS_EVERYWHERE = {"activityOptions", "priority"}
"""The common part of all calls."""


async def open_work(address: str) -> list[str]:
    """Wait until our workflows have ended, a while at most; return those that still run."""
    client = await Client.connect(address)
    return [
        f"{name} {id_} still runs"
        for name, seconds in (("AgentTask", CALM), ("PushDelivery", CALM + LAST_PAUSE))
        for id_ in await _running(client, name, seconds)
    ]


async def waits_for(address: str, task_id: str) -> list[str]:
    """Return the pending calls of a task from Temporal, with the results of their last attempts."""
    try:
        return await _waits_for(await Client.connect(address), task_id)
    except (RPCError, RuntimeError) as error:
        return [f"nobody knows what it waits for: {error}"]


async def _waits_for(client: Client, task_id: str) -> list[str]:
    described = await describe_raw(client, task_id)
    lines = [f"waits for {_told(call)}" for call in described.pending_activities]
    if described.HasField("pending_workflow_task"):
        lines.append(f"waits for a step of its workflow: {_told(described.pending_workflow_task)}")
    for child in described.pending_children:
        lines += [f"{child.workflow_id} {line}" for line in await _waits_for(client, child.workflow_id)]
    if described.workflow_extended_info.cancel_requested:
        lines.append("was cancelled")
    return lines


def _told(pending: Message) -> str:
    """Return a call's or step's state on one line."""
    said = cast("dict[str, object]", MessageToDict(pending))
    return json.dumps({name: value for name, value in said.items() if name not in _AS_EVERYWHERE})


async def _running(client: Client, name: str, seconds: float) -> list[str]:
    """Wait until a type's workflows have ended, a while at most; return the ids of those that still run."""
    deadline = asyncio.get_running_loop().time() + seconds
    query = f"WorkflowType = '{name}' AND ExecutionStatus = 'Running'"
    while True:
        found = [each.id async for each in client.list_workflows(query)]
        if not found or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.5)


async def held_too_long(fleet: Fleet) -> tuple[list[str], dict[str, Census]]:
    """Wait until all resources are within their limits, a while at most; return the excess by process."""
    deadline = asyncio.get_running_loop().time() + CALM
    while True:
        problems: list[str] = []
        held: dict[str, Census] = {}
        for seat in fleet.seats.values():
            now = held[seat.name] = await take_census(seat.process.pid, seat.log.parent)
            if seat.before:
                problems += [f"{seat.name} holds {more}" for more in now.beyond(seat.before)]
        if not problems or asyncio.get_running_loop().time() > deadline:
            return problems, held
        await asyncio.sleep(1)


async def orphans(fleet: Fleet) -> list[str]:
    """Return processes that outlive the started ones, which have all ended."""
    pids = {pid for seat in fleet.seats.values() for pid in seat.pids}
    left = [child for child in psutil.Process().children(recursive=True) if child.pid in pids]
    strays = [
        process
        for process in psutil.process_iter()
        if process.pid in pids and process not in left and process.status() != psutil.STATUS_ZOMBIE
    ]
    return [f"the process {process.pid} is still there" for process in (*left, *strays)]


async def connections_left(url: str) -> list[str]:
    """Wait until all connections to Redis except ours are closed, a while at most; return the open ones."""
    if not await redis_answers(url):
        return ["Redis does not answer"]
    deadline = asyncio.get_running_loop().time() + CALM
    async with connect_redis(url, NO_CIPHER) as redis:
        while True:
            servers = [await server.client_list(_type="normal") for server in await primaries(redis)]
            others = [client for clients in servers for client in clients[1:]]
            if not others or asyncio.get_running_loop().time() > deadline:
                return [f"Redis still has a connection from {each['addr']}" for each in others]
            await asyncio.sleep(0.5)


async def leaked_keys(url: str) -> tuple[list[str], Counter[str]]:
    """Return keys of Redis that are unknown or never expire; and the number of each kind."""
    problems: list[str] = []
    count: Counter[str] = Counter()
    async with connect_redis(url, NO_CIPHER) as redis:
        records = cast("list[str]", await redis.zrange(EXPIRING_ARTIFACTS_KEY, 0, -1))
        cleared = {name for record in records for name in _names_of(record)}
        async for key in _all_keys(redis):
            kind = next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(key)), "")
            count[kind or ("list" if key in _LISTS else "unknown")] += 1
            if not kind and key not in _LISTS:
                problems.append(f"Redis has a key that nobody knows: {key}")
            is_cleared = key.removesuffix(":0") in cleared or _KEPT_UP.fullmatch(key)
            if kind and not is_cleared and await redis.ttl(key) < 0:
                problems.append(f"Redis keeps a key for ever: {key}")
            if key.endswith(":open") and (members := await redis.zcard(key)):
                problems.append(f"{members} tasks still count as open: {key}")
    return problems, count


async def _all_keys(redis: Redis) -> AsyncIterator[str]:
    for server in await primaries(redis):
        async for key in cast("AsyncIterator[str]", server.scan_iter(count=1000)):
            yield key


def _names_of(record: str) -> list[str]:
    """Return the keys of an artifact of one part, which housekeeping removes when its time is over."""
    name = record.removeprefix("everloop:artifact:")
    context, _, _ = name.rpartition(":")
    of_context = [f"everloop:context:{context}:{what}" for what in ("artifacts", "pending-blobs")]
    return [record, f"everloop:artifact-tail:{name}", *of_context]


async def leaked_blobs(url: str, folder: Path) -> tuple[list[str], int]:
    """Return blobs of artifacts without a record that no cleanup will remove; and their number."""
    files = {f"{ARTIFACT_FOLDER}/{path.relative_to(folder / ARTIFACT_FOLDER)}" for path in _files(folder)}
    async with connect_redis(url, NO_CIPHER) as redis:
        pending = cast("list[str]", await redis.zrange(PENDING_BLOBS_KEY, 0, -1))
        known = {blob for key in pending for blob in cast("list[str]", await redis.zrange(key, 0, -1))}
        for key in cast("list[str]", await redis.zrange(EXPIRING_ARTIFACTS_KEY, 0, -1)):
            if record := await redis.get(key):
                known |= set(ArtifactRecord.model_validate_json(cast("str", record)).blob_keys())
    return [f"a blob that nobody knows: {key}" for key in files - known], len(files)


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / ARTIFACT_FOLDER).rglob("*") if path.is_file()]
