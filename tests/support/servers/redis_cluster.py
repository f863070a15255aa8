"""A cluster of three primaries with a replica each, for tests that may kill them."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.cluster import SLOTS, slot_of
from tests.support.servers.processes import ServerProcess, running_valkey

PRIMARIES = 3
NODE_TIMEOUT = 2_000
"""Milliseconds without an answer after which a node counts as failed."""

_DATABASES = 16
_PAUSE = 0.05
_MOST_LOOKS = 1_200

Proxy = Callable[[int], AbstractAsyncContextManager[int]]
"""Listens for clients of the server at a port, and returns its own port."""


@dataclass(frozen=True)
class Node:
    """A server of the cluster. `client_port` is its address for clients: its proxy's, if it has one."""

    port: int
    process: ServerProcess
    client_port: int
    id: str

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


class RedisCluster(ServerProcess):
    """The nodes: first the original primaries, and then their replicas in the same order.

    They are started, killed and stopped as one process.
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
            if not node.process.is_running():
                node.process.start()

    def is_running(self) -> bool:
        return all(node.process.is_running() for node in self.nodes)

    def _end(self, how: signal.Signals) -> int:
        codes = [node.process.stop() if how is signal.SIGTERM else node.process.kill() for node in self.nodes]
        return codes[0] or 0

    @property
    def url(self) -> str:
        """Return the cluster's URL for EVERLOOP_REDIS_URL."""
        hosts = ",".join(f"{LOOPBACK}:{node.client_port}" for node in self.nodes[:2])
        return f"redis://{hosts}/0?cluster=true"

    async def primary_of(self, key: str) -> Node:
        """Return the present node of a key's slot by the majority of the others."""
        return next(node for slots, node in await self._slots() if slot_of(key) in slots)

    async def shard(self, number: int) -> tuple[Node, Node]:
        """Return an original primary and its replica, by their number."""
        one, other = self.nodes[number], self.nodes[number + len(self.nodes) // 2]
        is_primary = cast("list[Any]", await _ask(one, "ROLE"))[0] == "master"
        return (one, other) if is_primary else (other, one)

    async def kill_primary(self, node: Node) -> None:
        """SIGKILL a primary, once its replica has all its data; return when that one has taken over."""
        await self.until_synchronised()
        node.process.kill()
        await self.until_replaced(node)

    async def until_replaced(self, node: Node) -> None:
        """Wait until the replica of a silent primary has taken over."""
        others = [other for other in self.nodes if other != node]
        for _ in range(_MOST_LOOKS):
            owners = {owner for _, owner in await self._slots(others)}
            if node not in owners and await self._is_ok(others):
                return
            await asyncio.sleep(_PAUSE)
        raise AssertionError(f"nobody took over from {node.address}")

    async def start_again(self, node: Node) -> None:
        """Restart a killed node, which becomes a replica."""
        node.process.start()
        await self.until_synchronised()

    async def move_slot(self, key: str) -> None:
        """Move the slot of a key, with all of its keys, to another primary, one key after another."""
        slot, source = slot_of(key), await self.primary_of(key)
        others = {owner for _, owner in await self._slots()} - {source}
        target = next(node for node in self.nodes if node in others)
        await _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := cast("list[str]", await _ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10)):
            await _ask(source, "MIGRATE", LOOPBACK, target.port, "", 0, 5000, "KEYS", *keys)
        for node in [target, source, *(others - {target})]:
            await _ask(node, "CLUSTER", "SETSLOT", slot, "NODE", target.id)

    async def move_slots_at_once(self, keys: Sequence[str]) -> None:
        """Move the slots of keys of one primary to another one: Valkey 9 copies, and then switches over."""
        source = await self.primary_of(keys[0])
        target = next(owner for _, owner in await self._slots() if owner != source)
        ranges = [slot for key in keys for slot in (slot_of(key), slot_of(key))]
        move = ("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", target.id)
        await _ask(source, *move)
        for _ in range(_MOST_LOOKS):
            if {await self.primary_of(key) for key in keys} == {target}:
                return
            newest = cast("list[list[Any]]", await _ask(source, "CLUSTER", "GETSLOTMIGRATIONS"))[0]
            if newest[newest.index("state") + 1] == "failed":  # a busy machine was late
                await _ask(source, *move)
            await asyncio.sleep(_PAUSE)
        raise AssertionError(f"slots do not move: {await _ask(source, 'CLUSTER', 'GETSLOTMIGRATIONS')}")

    async def some_keys(self, node: Node, most: int) -> list[str]:
        """Return keys of a primary, each of another slot."""
        found = [str(key) for _ in range(most) if (key := await _ask(node, "RANDOMKEY"))]
        return list({slot_of(key): key for key in found}.values())

    async def _slots(self, nodes: Sequence[Node] = ()) -> list[tuple[range, Node]]:
        for node in nodes or self.nodes:
            if node.process.is_running():
                ranges = cast("list[Any]", await _ask(node, "CLUSTER", "SLOTS"))
                known = {node.id: node for node in self.nodes}
                return [(range(first, last + 1), known[owner[2]]) for first, last, owner, *_ in ranges]
        raise AssertionError("no node runs")

    async def _is_ok(self, nodes: Sequence[Node] = ()) -> bool:
        running = [node for node in nodes or self.nodes if node.process.is_running()]
        infos = [str(await _ask(node, "CLUSTER", "INFO")) for node in running]
        return all("cluster_state:ok" in info for info in infos)

    async def until_synchronised(self) -> None:
        """Wait until each running replica has its primary's data, and all nodes report a healthy cluster.

        A node that was away regards itself as a primary until another one corrects it.
        """
        for _ in range(_MOST_LOOKS):
            running = [node for node in self.nodes if node.process.is_running()]
            roles = [cast("list[Any]", await _ask(node, "ROLE")) for node in running]
            links = [role[3] for role in roles if role[0] == "slave"]
            is_complete = len(roles) - len(links) == len(self.nodes) // 2
            if is_complete and await self._is_ok() and set(links) <= {"connected"}:
                return
            await asyncio.sleep(_PAUSE)
        raise AssertionError("the replicas did not synchronise")


@asynccontextmanager
async def running_redis_cluster(
    directory: Path, options: Sequence[str] = (), primaries: int = PRIMARIES, proxy: Proxy | None = None
) -> AsyncGenerator[RedisCluster]:
    """Yield a cluster that serves all slots, each primary with a replica; `proxy` stands before each node."""
    async with AsyncExitStack() as opened:
        nodes: list[Node] = []
        for number in range(2 * primaries):
            folder = directory / f"node-{number}"
            folder.mkdir(parents=True)
            settings = _options(free_port())
            port = client_port = free_port()
            if proxy:
                client_port = await opened.enter_async_context(proxy(port))
                settings += ["--cluster-announce-client-port", str(client_port)]
            process, _ = await opened.enter_async_context(running_valkey(folder, port, [*settings, *options]))
            node_id = str(await _ask_at(port, "CLUSTER", "MYID"))
            nodes.append(Node(port, process, client_port, node_id))
        cluster = RedisCluster(nodes)
        await _make_cluster(cluster, primaries)
        yield cluster


@asynccontextmanager
async def running_cluster_as_server(directory: Path) -> AsyncGenerator[tuple[ServerProcess, str]]:
    """Yield a cluster and its URL in the place of a single server."""
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
        await _until_known(replica, primary)
        await _ask(replica, "CLUSTER", "REPLICATE", primary.id)
    await cluster.until_synchronised()


async def _until_known(node: Node, other: Node) -> None:
    for _ in range(_MOST_LOOKS):
        if other.id in str(await _ask(node, "CLUSTER", "NODES")):
            return
        await asyncio.sleep(_PAUSE)
    raise AssertionError(f"{node.address} does not learn of its primary")


async def _bus_port(node: Node) -> int:
    found = cast("list[str]", await _ask(node, "CONFIG", "GET", "cluster-port"))
    return int(found[1])


async def _ask(node: Node, *command: str | int) -> Any:  # noqa: ANN401 -- replies are of any type
    """Return the answer of a node once it may write: its replica may be late on a busy machine."""
    for _ in range(_MOST_LOOKS):
        try:
            return await _ask_at(node.port, *command)
        except AssertionError as error:
            if "NOREPLICAS" not in str(error):
                raise
        await asyncio.sleep(_PAUSE)
    raise AssertionError(f"{node.address} has no replica that follows")


async def _ask_at(port: int, *command: str | int) -> Any:  # noqa: ANN401 -- replies are of any type
    try:
        async with Redis(host=LOOPBACK, port=port, decode_responses=True, protocol=2) as redis:
            # Its own parsers of replies need arguments that are not given here.
            redis.response_callbacks.clear()
            return cast("Any", await redis.execute_command(*command))
    except RedisError as error:
        raise AssertionError(f"port {port} refuses {' '.join(map(str, command))}: {error}") from error
