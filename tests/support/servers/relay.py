"""TCP relays between processes and a local server, which delay, hold, change or cut the traffic."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from everloop.local.servers import LOOPBACK

PIECE = 1 << 20


@dataclass(eq=False)
class Connection:
    """The two connections of a relayed client: its own, and the one to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def cut(self) -> None:
        """Break both."""
        for each in (self.client, self.server):
            each.transport.abort()


@dataclass
class Relay:
    """Forwards all traffic to the port `target`; `changed` replaces each piece of an answer."""

    target: int
    changed: Callable[[bytes], bytes] = bytes
    port: int = 0
    _open: set[Connection] = field(default_factory=set[Connection])
    _serving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def asked(self, connection: Connection, piece: bytes) -> bytes:
        """Return the bytes to forward of a client's piece, once they may pass; an `OSError` ends all."""
        return piece

    async def answered(self, connection: Connection, piece: bytes) -> bytes:
        """Return the bytes to forward of the server's answer."""
        return self.changed(piece)

    def cut(self) -> None:
        """Break all connections."""
        for connection in self._open:
            connection.cut()

    async def close(self) -> None:
        """Break all connections, and wait until none is served."""
        self.cut()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side ends it."""
        if serving := asyncio.current_task():
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        with suppress(asyncio.CancelledError):  # asyncio would report it
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target, limit=PIECE)
        except OSError:
            writer.transport.abort()
            return
        connection = Connection(writer, server_writer)
        self._open.add(connection)
        pumps = [
            asyncio.create_task(self._pump(reader, connection, connection.server)),
            asyncio.create_task(self._pump(server_reader, connection, connection.client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, server_writer):
                end.close()
            self._open.discard(connection)

    async def _pump(
        self, source: asyncio.StreamReader, connection: Connection, sink: asyncio.StreamWriter
    ) -> None:
        passed = self.answered if sink is connection.client else self.asked
        with suppress(OSError):
            while piece := await source.read(PIECE):
                sink.write(await passed(connection, piece))
                await sink.drain()


R = TypeVar("R", bound=Relay)


@asynccontextmanager
async def running_relay(relay: R, context: ssl.SSLContext | None = None) -> AsyncGenerator[R]:
    """Yield a relay that listens; with a context it speaks TLS to its clients."""
    server = await asyncio.start_server(relay.serve, LOOPBACK, limit=PIECE, ssl=context)
    relay.port = int(server.sockets[0].getsockname()[1])
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
        await server.wait_closed()


@dataclass
class Link(Relay):
    """A relay with a delay.

    `delay` is in seconds, for each piece in each direction; while `flows` is not set nothing passes.
    """

    delay: float = 0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    _held: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.flows.set()

    async def until_held(self) -> None:
        """Wait until a piece is held."""
        await self._held.wait()

    async def asked(self, connection: Connection, piece: bytes) -> bytes:
        if self.delay:
            await asyncio.sleep(self.delay)
        if not self.flows.is_set():
            self._held.set()
            await self.flows.wait()
        return piece

    answered = asked


@dataclass(frozen=True)
class Held:
    """A rule for held pieces: each command that has all of these words, or each reply that does."""

    words: tuple[str, ...]
    of_replies: bool = False

    def fits(self, piece: bytes) -> bool:
        return all(word.encode() in piece for word in self.words)


@dataclass
class RedisRelay(Relay):
    """Holds pieces by the names in `held`; a connection with a held piece passes no other either."""

    held: dict[str, Held] = field(default_factory=dict[str, Held])
    _reached: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _answered: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _asked: dict[Connection, set[str]] = field(default_factory=dict[Connection, set[str]])
    _goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._reached = {name: asyncio.Event() for name in self.held}
        self._answered = {name: asyncio.Event() for name in self.held}

    @property
    def url(self) -> str:
        """The URL of Redis for a process; its requests wait while a piece is held."""
        return f"redis://{self.address}/0?socket_timeout=600"

    async def until_held(self) -> None:
        """Wait until each name holds a piece."""
        await asyncio.gather(*(reached.wait() for reached in self._reached.values()))

    async def let_go(self) -> None:
        """Pass all traffic from now on; wait until Redis has answered the held commands."""
        self._goes_on.set()
        await asyncio.gather(*(answered.wait() for answered in self._answered.values()))

    async def asked(self, connection: Connection, piece: bytes) -> bytes:
        names = await self._hold(piece, of_replies=False)
        self._asked.setdefault(connection, set()).update(names)
        return piece

    async def answered(self, connection: Connection, piece: bytes) -> bytes:
        for name in self._asked.get(connection, set()) | await self._hold(piece, of_replies=True):
            self._answered[name].set()
        return piece

    async def _hold(self, piece: bytes, *, of_replies: bool) -> set[str]:
        """Return the names that held a piece, once it may pass."""
        found = {
            name for name, held in self.held.items() if held.of_replies is of_replies and held.fits(piece)
        }
        for name in found:
            self._reached[name].set()
        if found:
            await self._goes_on.wait()
        return found
