"""A client of Redis Cluster (Valkey Cluster), which stores use like one of a single server.

redis-py has one too. In 8.1 its pipelines start a thread and an event loop for each command of a
transaction, its ASKING may go over another connection than what it is for, it fails where all connections
are in use instead of waiting for one, and one redirected command can close the connections of all others.
So only its connections, commands and pipelines are used here: each node has a client of its own.
"""
# ruff: noqa: ANN401 -- arguments, options and replies of commands are of any type

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 -- that of Redis is meant here
    MasterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 -- that of Redis is meant here
    TryAgainError,
    WatchError,
)

SLOTS = 16_384

_REDIRECTIONS = 20
"""Attempts of a command to follow its slot, or to wait for the end of its move."""

_PAUSE = 0.05
"""Seconds before the retry of a command whose keys are on both sides of a move."""

_SLOW = 0.25
"""Seconds after which a reply may come from a node that stalled and was replaced meanwhile."""

_LOOK_TIMEOUT = 2.0
"""Seconds that a node may take to report the slot map, before another one is queried."""

_KEYLESS = frozenset(
    {
        "ACL",
        "CLIENT",
        "CLUSTER",
        "CONFIG",
        "DBSIZE",
        "FLUSHALL",
        "FLUSHDB",
        "INFO",
        "KEYS",
        "PING",
        "SCRIPT",
        "TIME",
    }
)

UNSERVED = (
    *(AskError, TryAgainError, ClusterDownError, MasterDownError),
    *(ConnectionError, TimeoutError, OSError),
)
"""Replies by which a node reports that it cannot serve the command now, and that its slots may have moved."""

_Command = tuple[Any, ...]
_Stack = list[tuple[_Command, dict[str, Any]]]

T = TypeVar("T")


class ClusterRedis(Redis):
    """Client that sends each command to the primary that has the slot of its key.

    `addresses` are the first nodes, as `host:port`; `connect` makes the connections to one. Only
    redirections are retried: the failure of a node is an error of this command, and the next command
    reloads the slot map. A command without a key goes to all primaries.
    """

    def __init__(self, addresses: Sequence[str], connect: Callable[[str], ConnectionPool]) -> None:
        super().__init__(connection_pool=connect(addresses[0]))
        self._addresses = list(addresses)
        self._connect = connect
        self._nodes: dict[str, Redis] = {}
        self._owners: list[str] = []
        self._is_stale = True
        self._looking = asyncio.Lock()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if (key := key_of(args)) is None:
            replies = [
                cast("Any", await node.execute_command(*args, **options)) for node in await self.primaries()
            ]
            return list(chain.from_iterable(replies)) if isinstance(replies[0], list) else replies[0]
        return await self.at(slot_of(key), lambda node, asking: _execute(node, args, options, asking))

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "ClusterPipeline":  # noqa: FBT001, FBT002 -- as Redis has it
        return ClusterPipeline(self, transaction=transaction)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 -- as Redis has it
        nodes, self._nodes, self._is_stale = list(self._nodes.values()), {}, True
        for node in nodes:
            await node.connection_pool.aclose()
        await self.connection_pool.aclose()

    async def primaries(self) -> list[Redis]:
        """Return a client of each node that has slots."""
        await self._look()
        return [self.node(address) for address in sorted(set(self._owners))]

    async def owner(self, key: str) -> str:
        """Return the address of the node that has the slot of a key."""
        await self._look()
        return self._owners[slot_of(key)]

    def node(self, address: str) -> Redis:
        """Return the client of a node."""
        if address not in self._nodes:
            self._nodes[address] = Redis(connection_pool=self._connect(address))
        return self._nodes[address]

    async def at(self, slot: int, work: Callable[[Redis, bool], Awaitable[T]]) -> T:
        """Run an operation at the node that has a slot, following the slot when it moves.

        `work` receives the node, and whether it has to send ASKING first. It may be called more than
        once; earlier calls had no effect.

        Raises:
            redis.exceptions.ConnectionError: the slot is not served now.
        """
        await self._look()
        address, asking = self._owners[slot], False
        for _ in range(_REDIRECTIONS):
            begun = asyncio.get_running_loop().time()
            try:
                reply = await work(self.node(address), asking)
            except MovedError as error:
                address, asking = self.note_move(error, address), False
            except AskError as error:
                address, asking = _address(error, address), True
            except TryAgainError:
                await asyncio.sleep(_PAUSE)
            except (*UNSERVED, ResponseError) as error:
                self.note_failure(error)
                raise
            else:
                await self.confirm(address, [] if asking else [slot], begun)
                return reply
        raise ConnectionError(f"slot {slot} moves for too long; try again")

    async def confirm(self, address: str, slots: Iterable[int], begun: float) -> None:
        """Verify after a slow reply that the node which gave it still has the slots.

        A stalled primary that resumes after its replica has taken over first processes the commands in
        its sockets: their effects are lost. So the other nodes are queried.

        Raises:
            redis.exceptions.ConnectionError: it was replaced; the effect of the command is uncertain.
        """
        if asyncio.get_running_loop().time() - begun < _SLOW:
            return
        self._is_stale = True
        await self._look(doubted=address)
        if any(self._owners[slot] != address for slot in slots):
            raise ConnectionError(f"{address} was replaced before it answered; try again")

    def note_failure(self, error: Exception) -> None:
        """Reload the slot map before the next command if this error of a node makes it doubtful.

        Raises:
            redis.exceptions.ConnectionError: the node answers, but does not serve the slot now.
        """
        if isinstance(error, UNSERVED):
            self._is_stale = True
        if isinstance(error, ResponseError) and _says_unserved(error):
            raise ConnectionError(f"the cluster does not serve a slot now: {error}") from error

    def note_move(self, error: MovedError, source: str) -> str:
        """Record the new address of a slot and return it."""
        address = _address(error, source)
        self._owners[error.slot_id] = address
        self._is_stale = True
        return address

    async def _look(self, doubted: str = "") -> None:
        if not self._is_stale:
            return
        async with self._looking:
            if not self._is_stale:
                return
            self._owners = await self._ask_who_owns(doubted)
            self._is_stale = False

    async def _ask_who_owns(self, doubted: str) -> list[str]:
        """Return the owners of all slots, from the first node that answers; one in doubt is queried last.

        Raises:
            redis.exceptions.ConnectionError: no node answers, or slots are without a node.
        """
        addresses = sorted(set(self._owners))
        random.shuffle(addresses)
        problem: Exception | None = None
        for address in sorted(dict.fromkeys([*addresses, *self._addresses]), key=doubted.__eq__):
            try:
                async with asyncio.timeout(_LOOK_TIMEOUT):
                    ranges = cast("list[Any]", await self.node(address).execute_command("CLUSTER", "SLOTS"))
            except (RedisError, OSError) as error:
                problem = error
                continue
            owners = [""] * SLOTS
            for first, last, (host, port, *_), *_ in ranges:
                served_at = f"{host or address.rpartition(':')[0]}:{port}"
                owners[first : last + 1] = [served_at] * (last + 1 - first)
            if all(owners):
                return owners
            problem = RedisError(f"{address} knows of slots that no node has")
        raise ConnectionError(f"no node of the cluster can be used: {problem}") from problem


class ClusterPipeline(Pipeline):
    """Pipeline of commands: a transaction at one slot, or a batch that is split among the nodes.

    A transaction whose slot moves while it watches keys fails as if one of them had changed.
    """

    def __init__(self, cluster: ClusterRedis, *, transaction: bool) -> None:
        callbacks = cast("Mapping[str | bytes, Any]", cluster.response_callbacks)
        super().__init__(cluster.connection_pool, dict(callbacks), transaction, None)
        self._cluster = cluster
        self._address = ""
        self._watched = 0

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "WATCH" and self.connection is None:
            self._watched = slot_of(args[1])
            self._address = await self._cluster.owner(args[1])
            self.connection_pool = self._cluster.node(self._address).connection_pool
        return await self._unmoved(
            cast("Awaitable[Any]", super().immediate_execute_command(*args, **options))
        )

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 -- as Pipeline has it
        stack = cast("_Stack", self.command_stack)
        if self.connection or not stack:
            return await self._unmoved(super().execute(raise_on_error))
        if not self.is_transaction:
            return await self._execute_everywhere(stack, raise_on_error=raise_on_error)
        slots = {slot_of(key) for args, _ in stack if (key := key_of(args)) is not None}
        if len(slots) != 1:
            await self.reset()
            raise RedisError(f"a transaction needs keys of one slot; these are of {len(slots)}")
        scripts = set(self.scripts)

        async def execute(node: Redis, asking: bool) -> list[Any]:  # noqa: FBT001 -- what `at` gives
            self.connection_pool = node.connection_pool
            self.command_stack, self.scripts = list(stack), set(scripts)
            if self.scripts:
                await self.load_scripts()
                self.scripts.clear()
            if asking:
                await super(ClusterPipeline, self).immediate_execute_command("ASKING")
            return await super(ClusterPipeline, self).execute(raise_on_error)

        try:
            return await self._cluster.at(slots.pop(), execute)
        finally:
            await self.reset()

    async def _unmoved(self, watched: Awaitable[T]) -> T:
        """Return the reply to a command of a transaction that watches keys."""
        begun = asyncio.get_running_loop().time()
        try:
            reply = await watched
        except MovedError as error:
            self._cluster.note_move(error, self._address)
            raise WatchError("the slot of the watched keys has moved") from error
        except (*UNSERVED, ResponseError) as error:
            self._cluster.note_failure(error)
            raise
        if self._address:
            await self._cluster.confirm(self._address, [self._watched], begun)
        return reply

    async def _execute_everywhere(self, stack: _Stack, *, raise_on_error: bool) -> list[Any]:
        scripts = set(self.scripts)
        await self.reset()
        groups: dict[str, list[int]] = {}
        for position, (args, _) in enumerate(stack):
            groups.setdefault(await self._cluster.owner(str(key_of(args))), []).append(position)

        async def execute(address: str, positions: Sequence[int]) -> list[Any]:
            pipeline = self._cluster.node(address).pipeline(transaction=False)
            pipeline.command_stack = [stack[position] for position in positions]
            pipeline.scripts = set(scripts)
            begun = asyncio.get_running_loop().time()
            replies = await pipeline.execute(raise_on_error=False)
            done = zip(positions, replies, strict=True)
            keys = [str(key_of(stack[place][0])) for place, reply in done if not _says_unserved(reply)]
            await self._cluster.confirm(address, map(slot_of, keys), begun)
            return replies

        try:
            replies_of_groups = await asyncio.gather(*(execute(*group) for group in groups.items()))
        except UNSERVED as error:
            self._cluster.note_failure(error)
            raise
        found = dict(zip(chain(*groups.values()), chain(*replies_of_groups), strict=True))
        replies = [found[position] for position in range(len(stack))]
        await self._follow(stack, replies, scripts)
        if raise_on_error:
            self.raise_first_error(cast("Any", stack), replies)
        return replies

    async def _follow(self, stack: _Stack, replies: list[Any], scripts: set[Any]) -> None:
        """Retry, one by one, the commands that a node does not serve; put the replies in their places."""
        elsewhere = [place for place, reply in enumerate(replies) if _says_unserved(reply)]
        for script in scripts if elsewhere else ():  # a new primary may have none loaded
            await self._cluster.execute_command("SCRIPT LOAD", script.script)
        for place in elsewhere:
            args, options = stack[place]
            replies[place] = await self._cluster.execute_command(*args, **options)


def key_of(args: Sequence[Any]) -> str | None:
    """Return the key of a command that stores use, the first of several; None: it has none."""
    name, *words = [*str(args[0]).split(), *args[1:]]
    match name.upper():
        case "EVAL" | "EVALSHA":
            return words[2] if int(words[1]) else None
        case "XREAD":
            return next(words[n + 1] for n, word in enumerate(words) if word in {"STREAMS", b"STREAMS"})
        case "MEMORY" | "OBJECT" | "XINFO" | "XGROUP" | "DEBUG":
            return words[1]
        case name if name in _KEYLESS:
            return None
        case "SCAN":
            raise TypeError("SCAN looks at one node: scan each of `primaries`")
        case _:
            return words[0]


def slot_of(key: str | bytes) -> int:
    """Return the hash slot of a key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _says_unserved(reply: object) -> bool:
    """Return whether a reply says that the node cannot serve the command now, missing replicas included."""
    return isinstance(reply, UNSERVED) or (isinstance(reply, ResponseError) and "NOREPLICAS" in str(reply))


async def _execute(node: Redis, args: _Command, options: dict[str, Any], asking: bool) -> Any:  # noqa: FBT001 -- what `at` gives
    if not asking:
        return cast("Any", await node.execute_command(*args, **options))
    async with node.pipeline(transaction=False) as pipeline:
        pipeline.execute_command("ASKING")
        pipeline.execute_command(*args, **options)
        return (await pipeline.execute())[-1]


def _address(error: AskError, source: str) -> str:
    """Return the redirection target; without a host it is the host of the node that replied."""
    return f"{error.host or source.rpartition(':')[0]}:{error.port}"
