"""Faults of a Redis cluster: a primary dies or freezes, a replica dies, slots move."""

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from tests.chaos.plan import NODE_LINKS, Harm
from tests.support.servers.processes import ServerProcess
from tests.support.servers.redis_cluster import PRIMARIES, Node, RedisCluster, running_redis_cluster
from tests.support.servers.relay import Link, running_relay

MOVED = 30
"""Slots that move at a time: those of random keys of the primary."""

OPTIONS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
"""As docs/operation/operation.md advises: a primary whose replica does not follow refuses writes."""


@asynccontextmanager
async def running_linked_cluster(
    directory: Path, links: dict[str, Link]
) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a cluster and its URL; clients reach each node by a link, which is added to `links`."""
    names = iter(NODE_LINKS)

    @asynccontextmanager
    async def linked(port: int) -> AsyncGenerator[int]:
        async with running_relay(Link(port)) as link:
            links[next(names)] = link
            yield link.port

    async with running_redis_cluster(directory, OPTIONS, proxy=linked) as cluster:
        yield cluster, cluster.url


class ClusterFaults:
    """Harms one shard after another."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._shards = count()

    async def begin(self, harm: Harm) -> Callable[[], Awaitable[bool]]:
        """Harm the next shard, and return the function that heals it."""
        cluster = self._cluster
        primary, replica = await cluster.shard(next(self._shards) % PRIMARIES)
        node = replica if harm.target == "replica" else primary
        if harm.how in {"move", "move at once"}:
            return await self._move(primary, at_once=harm.how == "move at once")
        if harm.how == "freeze":
            os.kill(node.process.pid, signal.SIGSTOP)
        elif harm.how == "fail over":
            await cluster.kill_primary(node)
        else:
            node.process.kill()

        async def heal() -> bool:
            if harm.how == "freeze":
                os.kill(node.process.pid, signal.SIGCONT)
            else:
                node.process.start()
            await cluster.until_synchronised()
            return True

        return heal

    async def _move(self, primary: Node, *, at_once: bool) -> Callable[[], Awaitable[bool]]:
        keys = await self._cluster.some_keys(primary, MOVED)
        if at_once and keys:
            await self._cluster.move_slots_at_once(keys)
        elif not at_once:
            for key in keys:
                await self._cluster.move_slot(key)

        async def end() -> bool:
            return False

        return end
