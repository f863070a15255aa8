"""Many subscribers come and go, and nothing stays."""

import asyncio
import gc
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from temporalio.client import Client

from everloop.gateway.tasks.fanout import EventFanout
from everloop.runtime.redis import connect_redis
from everloop.stores.log.log_store import TaskViews
from everloop.stores.log.log_types import START
from tests.gateway.harness import RunningGateway, running_gateway
from tests.gateway.streams.followed_tasks import FollowedTask, working_task
from tests.support.servers.processes import running_valkey

AT_ONCE = 50
COLLECT_EVERY = 2_000
OURS = {
    "Subscription",
    "_Topic",
    "UpdateTranslator",
    "A2ARequest",
    "EventSourceResponse",
    "ServerCallContext",
}
"""Classes whose objects live no longer than a subscriber."""


ALLOWED = {"objects": 5, "redis_clients": 5}
"""Differences by chance: a request held by its last traceback, a connection that a client cut off."""


@dataclass(frozen=True)
class Held:
    """Objects and connections of a gateway without subscribers."""

    asyncio_tasks: int
    subscribed_tasks: int
    objects: int
    connections: int
    redis_clients: int
    redis_keys: int


@dataclass(frozen=True)
class Site:
    """A gateway with a Redis of its own, a task that works and one that has ended."""

    gateway: RunningGateway
    redis: Redis
    working: FollowedTask
    ended: FollowedTask

    async def held(self) -> Held:
        gc.collect()  # tracebacks of calls that were cut off hold one another
        return Held(
            asyncio_tasks=len(asyncio.all_tasks()),
            subscribed_tasks=self.gateway.fanout.subscribed_tasks,
            objects=sum(type(one).__name__ in OURS for one in gc.get_objects()),
            connections=len(self.gateway.server.server_state.connections),
            redis_clients=len(await self.redis.client_list()),
            redis_keys=int(await self.redis.dbsize()),
        )


@pytest.fixture
async def site(client: Client, tmp_path: Path) -> AsyncGenerator[Site]:
    async with running_valkey(tmp_path) as (_, url), connect_redis(url) as redis:
        views = TaskViews(redis)
        await asyncio.gather(*(redis.ping() for _ in range(200)))  # opens all connections of the pool
        working, ended = await working_task(views), await working_task(views)
        await ended.write("all")
        await ended.complete()
        fanout = EventFanout(views, idle_check=600)
        async with running_gateway(client, views, queue="none", fanout=fanout) as gateway:
            yield Site(gateway, redis, working, ended)


async def repeat(times: int, cycle: Callable[[int], Awaitable[None]]) -> None:
    """Run so many cycles, some of them at once; collect garbage now and then, as in production."""
    numbers = iter(range(times))

    async def work() -> None:
        for number in numbers:
            await cycle(number)
            if number % COLLECT_EVERY == 0:
                gc.collect()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def grown(site: Site, before: Held) -> dict[str, int]:
    """Return the growth since the first count, as soon as it is zero or after a while."""
    grown: dict[str, int] = {}
    for _ in range(100):
        held, then = asdict(await site.held()), asdict(before)
        grown = {name: more for name in held if (more := held[name] - then[name]) > ALLOWED.get(name, 0)}
        if not grown:
            break
        await asyncio.sleep(0.1)
    return grown


async def at_rest(site: Site) -> Held:
    """Return the counts as soon as no task has a subscriber any more."""
    while True:
        held = await site.held()
        if not (held.subscribed_tasks or held.connections):
            return held
        await asyncio.sleep(0.1)


async def subscribe_and_leave(url: str, task_id: str, last_id: str, *, silently: bool) -> None:
    """Read the first event of a stream; then close the connection, or drop it as a client does that dies."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    body = json.dumps(call)
    resume = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
    writer.write(
        f"POST / HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"{resume}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await reader.readuntil(b"data: ")
    if silently:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST instead of FIN
        writer.transport.abort()
    writer.close()


@pytest.mark.parametrize("many", [100, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_connections_leave_nothing_behind(site: Site, many: int) -> None:
    """No asyncio task, subscription, object of ours, Redis connection or key stays.

    They end in the middle of a stream, every second one without a word (RST); every fourth goes on behind an
    event of a task that has ended.
    """
    last_id = await first_id(site)

    async def cycle(number: int) -> None:
        task, after = (site.ended, last_id) if number % 4 == 3 else (site.working, "")
        await subscribe_and_leave(site.gateway.url, task.id, after, silently=bool(number % 2))

    await repeat(AT_ONCE, cycle)
    before = await at_rest(site)
    await repeat(many, cycle)
    assert await grown(site, before) == {}


async def first_id(site: Site) -> str:
    """Return the id of the first event of the task that has ended."""
    events = await TaskViews(site.redis).read({site.ended.id: START}, wait=0, limit=1)
    return events[0].position
