"""Reads the event streams of many tasks through one connection."""

import asyncio
import math
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, cast

import structlog
from pydantic import ValidationError
from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError
from redis.utils import str_if_bytes
from structlog.typing import FilteringBoundLogger

from everloop.runtime.cluster import UNSERVED, ClusterRedis
from everloop.runtime.encryption.cipher import EncryptionError
from everloop.runtime.redis import LONGEST_BLOCK, cipher_of
from everloop.stores.keys import log_key, wake_key
from everloop.stores.log.log_codec import LogCodec
from everloop.stores.log.log_types import START, StreamedEvent

_WAKE_TTL = 600
"""Lifetime of a wake entry in seconds: longer than the pause of a reader between two reads."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)

_LOOK_AGAIN = 5.0
"""Seconds after which a stream of a cluster is read without a notification, which may have been lost."""

_PAUSE = 0.05
"""Seconds until the next read of a stream whose slot is moving."""

_Entry = tuple[str, dict[str, str]]
_Stream = tuple[str, Sequence[_Entry]]
_Command = tuple[str | int, ...]


class RedisEventReader:
    """The single reader of a process, with one `read` at a time.

    A read holds one connection of the pool while it blocks. Events of an unknown kind, and events that cannot
    be decrypted, are skipped with a warning.
    """

    def __init__(self, redis: Redis) -> None:
        self._streams = _ClusterStreams(redis) if isinstance(redis, ClusterRedis) else _Streams(redis)
        self._cipher = cipher_of(redis)
        self._skipped: dict[str, tuple[str, str]] = {}

    async def read(self, positions: Mapping[str, str], *, wait: float, limit: int) -> list[StreamedEvent]:
        """Return the events of `TaskViews.read`; may return early without events."""
        self._skipped = {task_id: skip for task_id, skip in self._skipped.items() if task_id in positions}
        task_ids = {log_key(task_id): task_id for task_id in positions}
        streams = {key: self._first_unread(task_id, positions[task_id]) for key, task_id in task_ids.items()}
        events: list[StreamedEvent] = []
        for key, entries in await self._streams.read(streams, min(wait, LONGEST_BLOCK), limit):
            task_id = task_ids[key]
            events += self._parse_all(task_id, positions[task_id], entries)
        return events

    async def wake(self) -> None:
        """End the waiting read, or else the next one."""
        await self._streams.wake()

    def _first_unread(self, task_id: str, position: str) -> str:
        """Return the position to read from: after the events that were skipped after the caller's position.

        Callers do not see skipped events, so the next read would return at once with the same ones.
        """
        requested, skipped_to = self._skipped.get(task_id, ("", ""))
        return skipped_to if requested == position else position

    def _parse_all(self, task_id: str, requested: str, entries: Sequence[_Entry]) -> list[StreamedEvent]:
        events = [event for entry in entries if (event := self._parse(task_id, entry))]
        read_to, last_position = events[-1].position if events else requested, entries[-1][0]
        if read_to != last_position:
            self._skipped[task_id] = read_to, last_position
        return events

    def _parse(self, task_id: str, entry: _Entry) -> StreamedEvent | None:
        position, fields = entry
        try:
            event = LogCodec(task_id, self._cipher).entry(fields).event
            return StreamedEvent(task_id, position, event, follows_loss="lost" in fields)
        except EncryptionError as error:  # concerns one task; the others go on
            _log.error("event skipped", task_id=task_id, position=position, problem=str(error))
            return None
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]["msg"]
            _log.warning("unknown event skipped", task_id=task_id, position=position, problem=problem)
            return None


class _Streams:
    """Reads streams of one server with one blocking XREAD. Without streams, it sends no command."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._wake_key = wake_key(uuid.uuid4().hex)
        self._woken_at = START
        self._renew_at = 0.0
        self._woken = asyncio.Event()
        self._is_blocked = False

    async def read(self, positions: Mapping[str, str], wait: float, limit: int) -> list[_Stream]:
        if wait <= 0:
            return await self._read(positions, limit)
        if not positions:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()
        is_woken = self._woken.is_set()
        self._woken.clear()
        if not positions:
            return []
        if is_woken:
            return await self._read(positions, limit)
        self._is_blocked = True
        try:
            return await self._read(positions, limit, max(1, round(wait * 1000)))
        finally:
            self._is_blocked = False

    async def _read(
        self, positions: Mapping[str, str], limit: int, block: int | None = None
    ) -> list[_Stream]:
        # BLOCK 0 would wait for ever, so a read that must not wait omits BLOCK.
        requested = {**positions, self._wake_key: self._woken_at}
        reply = cast("list[_Stream]", await self._redis.xread(requested, count=limit, block=block))
        for key, entries in reply:
            if key == self._wake_key:
                self._woken_at = entries[-1][0]
        return [stream for stream in reply if stream[0] != self._wake_key]

    async def wake(self) -> None:
        if not self._is_blocked:
            self._woken.set()
            return
        now = asyncio.get_running_loop().time()
        if now < self._renew_at:
            await self._redis.xadd(self._wake_key, {"wake": "1"}, maxlen=1, approximate=False)
            return
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(self._wake_key, {"wake": "1"}, maxlen=1, approximate=False)
            pipeline.expire(self._wake_key, _WAKE_TTL)
            await pipeline.execute()
        self._renew_at = now + _WAKE_TTL / 2


class _ClusterStreams:
    """Reads streams of a cluster and waits for entries, with one connection to each node that has streams.

    XREAD cannot block on streams of several slots. So a connection reads each stream once, and the node
    notifies it of changes (CLIENT TRACKING, made for caches; it works without an action of the appending
    script). That takes one round trip more than a blocking read, but with many streams only a tenth of its
    time in the server. One caller at a time may wait.

    A primary may show entries that its successor lacks. So if a stream has moved to another node, the last
    entry that was read must exist there; otherwise the next one is marked, as by `append.lua`.
    """

    def __init__(self, cluster: ClusterRedis) -> None:
        self._cluster = cluster
        self._nodes: dict[str, _TrackedNode] = {}
        self._read_to: dict[str, str] = {}
        """Stream → its last position, if its node has notified no change since."""
        self._read_at: dict[str, str] = {}
        """Stream → address of the node of the last read."""
        self._torn = set[str]()
        self._looked_at = 0.0
        self._woken = asyncio.Event()
        self._waiting = asyncio.Lock()

    async def wake(self) -> None:
        self._woken.set()

    async def read(self, positions: Mapping[str, str], wait: float, limit: int) -> list[_Stream]:
        if wait <= 0:
            return await self._read_at_once(positions, limit)
        async with self._waiting:
            return await self._wait_and_read(positions, wait, limit)

    async def _wait_and_read(self, positions: Mapping[str, str], wait: float, limit: int) -> list[_Stream]:
        clock = asyncio.get_running_loop().time
        end = clock() + wait
        if clock() - self._looked_at > _LOOK_AGAIN:
            self._looked_at = clock()
            self._read_to.clear()
            self._read_at = {key: node for key, node in self._read_at.items() if key in positions}
            self._torn &= set(positions)
        while True:
            unread = {key: at for key, at in positions.items() if self._read_to.get(key) != at}
            found = await self._read(unread, limit) if unread else []
            if found or self._woken.is_set() or clock() >= end:
                self._woken.clear()
                return found
            await self._wait_for_news(end - clock())

    async def _read_at_once(self, positions: Mapping[str, str], limit: int) -> list[_Stream]:
        async with self._cluster.pipeline(transaction=False) as pipeline:
            for key, position in positions.items():
                pipeline.xread({key: position}, count=limit)
            replies = cast("list[list[_Stream]]", await pipeline.execute())
        return [stream for reply in replies for stream in reply]

    async def _read(self, positions: Mapping[str, str], limit: int) -> list[_Stream]:
        by_node: dict[str, list[str]] = {}
        for key in positions:
            by_node.setdefault(await self._cluster.owner(key), []).append(key)
        found: list[_Stream] = []
        for address, keys in by_node.items():
            await self._check_new_owner(address, keys, positions)
            commands = [("XREAD", "COUNT", limit, "STREAMS", key, positions[key]) for key in keys]
            for key, reply in zip(keys, await self._ask(address, keys, commands), strict=True):
                if isinstance(reply, Exception):
                    await self._note_error(reply, address)
                    continue
                entries = [_entry(*each) for each in reply[key]] if reply else []
                if entries and key in self._torn:
                    self._torn.remove(key)
                    entries[0][1]["lost"] = "1"
                found += [(key, entries)] if entries else []
                if len(entries) < limit and key not in self._nodes[address].changed:
                    self._read_to[key] = entries[-1][0] if entries else positions[key]
        return found

    async def _check_new_owner(self, address: str, keys: list[str], positions: Mapping[str, str]) -> None:
        """Note the streams that were last read from another node and lack the last read entry on this one."""
        others = [key for key in keys if self._read_at.get(key, address) != address]
        moved = [key for key in others if positions[key] != START]
        commands: list[_Command] = [("XRANGE", key, positions[key], positions[key]) for key in moved]
        replies = await self._ask(address, [], commands) if moved else []
        self._torn.update(key for key, reply in zip(moved, replies, strict=True) if reply == [])
        unknown = {key for key, reply in zip(moved, replies, strict=True) if isinstance(reply, Exception)}
        self._read_at.update(dict.fromkeys(set(keys) - unknown, address))

    async def _ask(self, address: str, keys: list[str], commands: list[_Command]) -> list[Any]:
        try:
            if address not in self._nodes:
                self._nodes[address] = await _TrackedNode.open(self._cluster.node(address))
            node = self._nodes[address]
            node.changed.difference_update(keys)
            return await node.execute(commands)
        except UNSERVED as error:
            await self._drop(address)
            self._cluster.note_failure(error)
            raise

    async def _note_error(self, error: Exception, address: str) -> None:
        """Continue with the other streams; this one is read again."""
        if isinstance(error, MovedError):
            self._cluster.note_move(error, address)
        elif isinstance(error, AskError | TryAgainError):
            await asyncio.sleep(_PAUSE)
        else:
            self._cluster.note_failure(error)
            raise error

    async def _wait_for_news(self, seconds: float) -> None:
        """Wait until a stream has changed, `wake` is called, or the time is over."""
        waiting = {asyncio.create_task(node.wait()): address for address, node in self._nodes.items()}
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait({*waiting, woken}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*waiting, woken):
                task.cancel()
            await asyncio.wait({*waiting, woken})
        for task, address in waiting.items():
            if not task.cancelled() and (error := task.exception()):
                await self._drop(address)
                self._cluster.note_failure(cast("Exception", error))
                raise error
        for node in self._nodes.values():
            for key in node.changed:
                self._read_to.pop(key, None)

    async def _drop(self, address: str) -> None:
        """Close a connection. Its notifications are lost, so all its streams are read again."""
        self._read_to.clear()
        if node := self._nodes.pop(address, None):
            await node.close()


class _TrackedNode:
    """A connection whose node notifies it of changes of the keys that it has read."""

    def __init__(self, pool: ConnectionPool, connection: Any) -> None:  # noqa: ANN401 -- redis-py lets its type open
        self._pool = pool
        self._connection = connection
        self.changed = set[str]()
        connection._parser.set_invalidation_push_handler(self._note)  # noqa: SLF001 -- redis-py names no other way

    @classmethod
    async def open(cls, node: Redis) -> Self:
        connection = await node.connection_pool.get_connection()
        tracked = cls(node.connection_pool, connection)
        try:
            await tracked.execute([("CLIENT", "TRACKING", "ON")])
        except BaseException:
            await tracked.close()
            raise
        return tracked

    async def execute(self, commands: Sequence[_Command]) -> list[Any]:
        """Return the replies, errors among them."""
        await self._connection.send_packed_command(self._connection.pack_commands(commands))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await self._connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    async def wait(self) -> None:
        """Wait until a key has changed. A cancelled wait loses no changes."""
        while not self.changed:
            await self._connection.read_response(
                timeout=math.inf, push_request=True, disconnect_on_error=False
            )

    async def close(self) -> None:
        await self._connection.disconnect()
        await self._pool.release(self._connection)

    async def _note(self, message: Sequence[Any]) -> None:
        keys = cast("list[str | bytes] | None", message[1])  # None: the database was emptied
        self.changed.update(str_if_bytes(key) for key in keys or ())


def _entry(position: str, words: Sequence[str]) -> _Entry:
    return position, dict(zip(words[::2], words[1::2], strict=True))
