"""A cluster of three primaries with a replica each, for tests that may kill them."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.deploy.local.servers import LOOPBACK, free_port
from everloop.runtime.cluster import SLOTS, slot_of
from tests.support.servers.processes import ServerProcess, running_valkey

PRIMARIES = 3
NODE_TIMEOUT = 2_000
"""Milliseconds after which a node counts as gone."""

_DATABASES = 16
_PAUSE = 0.05
_MOST_LOOKS = 1_200


@dataclass(frozen=True)
class Node:
    """A server of the cluster."""

    port: int
    process: ServerProcess

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


class RedisCluster(ServerProcess):
    """Its nodes: primaries as they were at first, and then their replicas in the same order.

    As a process of its own it is started, killed and stopped as a whole.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    @property
    def pid(self) -> int:
        return self.nodes[0].process.pid

    @property
    def output(self) -> str:
        return "".join(node.process.output for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.process.start()

    def is_running(self) -> bool:
        return all(node.process.is_running() for node in self.nodes)

    def _end(self, how: signal.Signals) -> int:
        codes = [node.process.stop() if how is signal.SIGTERM else node.process.kill() for node in self.nodes]
        return codes[0] or 0

    @property
    def url(self) -> str:
        """What EVERLOOP_REDIS_URL says of it."""
        return f"redis://{','.join(node.address for node in self.nodes[:2])}/0?cluster=true"

    async def primary_of(self, key: str) -> Node:
        """Return the node that has the slot of a key now, as most of the others say."""
        slots = await self._slots()
        port = next(port for first, last, port in slots if first <= slot_of(key) <= last)
        return next(node for node in self.nodes if node.port == port)

    async def kill_primary(self, node: Node) -> None:
        """SIGKILL a primary, once its replica has all that it has; return when that one has taken over."""
        await self.until_synchronised()
        node.process.kill()
        for _ in range(_MOST_LOOKS):
            if node.port not in {port for _, _, port in await self._slots()} and await self._is_ok():
                return
            await asyncio.sleep(_PAUSE)
        raise AssertionError(f"nobody took over from {node.address}")

    async def start_again(self, node: Node) -> None:
        """Start a node that was killed; it comes back as a replica."""
        node.process.start()
        await self.until_synchronised()

    async def move_slot(self, key: str) -> None:
        """Move the slot of a key, with all of its keys, to another primary, one key after another."""
        slot, source = slot_of(key), await self.primary_of(key)
        ports = {port for _, _, port in await self._slots()}
        target = next(node for node in self.nodes if node.port in ports - {source.port})
        source_id, target_id = await _ask(source, "CLUSTER", "MYID"), await _ask(target, "CLUSTER", "MYID")
        await _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        await _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := cast("list[str]", await _ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10)):
            await _ask(source, "MIGRATE", LOOPBACK, target.port, "", 0, 5000, "KEYS", *keys)
        for port in [target.port, source.port, *(ports - {source.port, target.port})]:
            node = next(node for node in self.nodes if node.port == port)
            await _ask(node, "CLUSTER", "SETSLOT", slot, "NODE", target_id)

    async def _slots(self) -> list[tuple[int, int, int]]:
        for node in self.nodes:
            if node.process.is_running():
                ranges = cast("list[Any]", await _ask(node, "CLUSTER", "SLOTS"))
                return [(first, last, primary[1]) for first, last, primary, *_ in ranges]
        raise AssertionError("no node runs")

    async def _is_ok(self) -> bool:
        running = [node for node in self.nodes if node.process.is_running()]
        infos = [str(await _ask(node, "CLUSTER", "INFO")) for node in running]
        return all("cluster_state:ok" in info for info in infos)

    async def until_synchronised(self) -> None:
        """Wait until each replica that runs has what its primary has, and all nodes say that all is well."""
        for _ in range(_MOST_LOOKS):
            running = [node for node in self.nodes if node.process.is_running()]
            roles = [cast("list[Any]", await _ask(node, "ROLE")) for node in running]
            if await self._is_ok() and all(role[0] == "master" or role[3] == "connected" for role in roles):
                return
            await asyncio.sleep(_PAUSE)
        raise AssertionError("the replicas did not synchronise")


@asynccontextmanager
async def running_redis_cluster(
    directory: Path, options: Sequence[str] = (), primaries: int = PRIMARIES
) -> AsyncGenerator[RedisCluster]:
    """Yield a cluster that serves all slots, each primary with a replica."""
    async with AsyncExitStack() as opened:
        nodes: list[Node] = []
        for number in range(2 * primaries):
            folder = directory / f"node-{number}"
            folder.mkdir(parents=True)
            settings = _options(free_port())
            port = free_port()
            process, _ = await opened.enter_async_context(running_valkey(folder, port, [*settings, *options]))
            nodes.append(Node(port, process))
        cluster = RedisCluster(nodes)
        await _make_cluster(cluster, primaries)
        yield cluster


@asynccontextmanager
async def running_cluster_as_server(directory: Path) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a cluster where a test asks for a server, and its URL."""
    async with running_redis_cluster(directory) as cluster:
        yield cluster, cluster.url


def _options(bus_port: int) -> list[str]:
    return [
        *("--cluster-enabled", "yes"),
        *("--cluster-port", str(bus_port)),
        *("--cluster-node-timeout", str(NODE_TIMEOUT)),
        *("--cluster-databases", str(_DATABASES)),
        *("--repl-diskless-sync-delay", "0"),
        *("--cluster-replica-validity-factor", "0"),
    ]


async def _make_cluster(cluster: RedisCluster, primaries: int) -> None:
    first, *others = cluster.nodes
    for epoch, node in enumerate(cluster.nodes, 1):
        await _ask(node, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
    for node in others:
        await _ask(node, "CLUSTER", "MEET", LOOPBACK, first.port, await _bus_port(first))
    share = SLOTS // primaries
    for number, node in enumerate(cluster.nodes[:primaries]):
        end = SLOTS - 1 if number == primaries - 1 else (number + 1) * share - 1
        await _ask(node, "CLUSTER", "ADDSLOTSRANGE", number * share, end)
    for primary, replica in zip(cluster.nodes[:primaries], cluster.nodes[primaries:], strict=True):
        node_id = str(await _ask(primary, "CLUSTER", "MYID"))
        await _until_known(replica, node_id)
        await _ask(replica, "CLUSTER", "REPLICATE", node_id)
    await cluster.until_synchronised()


async def _until_known(node: Node, node_id: str) -> None:
    for _ in range(_MOST_LOOKS):
        if node_id in str(await _ask(node, "CLUSTER", "NODES")):
            return
        await asyncio.sleep(_PAUSE)
    raise AssertionError(f"{node.address} does not learn of its primary")


async def _bus_port(node: Node) -> int:
    found = cast("list[str]", await _ask(node, "CONFIG", "GET", "cluster-port"))
    return int(found[1])


async def _ask(node: Node, *command: str | int) -> Any:  # noqa: ANN401 -- replies are of any type
    try:
        async with Redis(host=LOOPBACK, port=node.port, decode_responses=True, protocol=2) as redis:
            # Its own parsers of replies want what we do not give.
            redis.response_callbacks.clear()
            return cast("Any", await redis.execute_command(*command))
    except RedisError as error:
        raise AssertionError(f"{node.address} refuses {' '.join(map(str, command))}: {error}") from error
