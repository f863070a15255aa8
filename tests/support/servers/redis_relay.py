"""A TCP relay before Redis that holds what carries certain words, until it is told to let go.

It may change answers, too, also of another server.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from everloop.deploy.local.servers import LOOPBACK

PIECE = 1 << 20


@dataclass(frozen=True)
class Held:
    """What is held: each command that carries all of these words, or each reply that does."""

    words: tuple[str, ...]
    of_replies: bool = False

    def fits(self, piece: bytes) -> bool:
        return all(word.encode() in piece for word in self.words)


@dataclass
class RedisRelay:
    """Holds by the names in `held`; a connection on which something is held brings nothing else either."""

    target: int
    held: dict[str, Held]
    port: int = 0
    answered: Callable[[bytes], bytes] = bytes
    """What becomes of each piece of an answer; `bytes` leaves it as it is."""
    _reached: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _answered: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _serving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self._reached = {name: asyncio.Event() for name in self.held}
        self._answered = {name: asyncio.Event() for name in self.held}

    @property
    def url(self) -> str:
        """Where a process is to look for Redis; it waits for as long as anything is held."""
        return f"redis://{LOOPBACK}:{self.port}/0?socket_timeout=600"

    async def until_held(self) -> None:
        """Wait until something is held by every name."""
        await asyncio.gather(*(reached.wait() for reached in self._reached.values()))

    async def let_go(self) -> None:
        """Let everything pass from now on; wait until Redis has answered what was held."""
        self._open.set()
        await asyncio.gather(*(answered.wait() for answered in self._answered.values()))

    async def close(self) -> None:
        """Break all connections."""
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side ends it."""
        if serving := asyncio.current_task():
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        with suppress(asyncio.CancelledError, OSError):  # asyncio would report it
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target)
            asked = set[str]()
            pumps = [
                asyncio.create_task(self._pump_commands(reader, server_writer, asked)),
                asyncio.create_task(self._pump_replies(server_reader, writer, asked)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                writer.close()
                server_writer.close()

    async def _pump_commands(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: set[str]
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(PIECE):
                names = await self._hold(piece, of_replies=False)
                sink.write(piece)
                asked |= names
                await sink.drain()

    async def _pump_replies(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asked: set[str]
    ) -> None:
        with suppress(OSError):
            while piece := await source.read(PIECE):
                names = asked | await self._hold(piece, of_replies=True)
                sink.write(self.answered(piece))
                await sink.drain()
                for name in names:
                    self._answered[name].set()

    async def _hold(self, piece: bytes, *, of_replies: bool) -> set[str]:
        """Return by which names a piece was held, once it may pass."""
        found = {
            name for name, held in self.held.items() if held.of_replies is of_replies and held.fits(piece)
        }
        for name in found:
            self._reached[name].set()
        if found:
            await self._open.wait()
        return found


@asynccontextmanager
async def running_redis_relay(
    target: int, held: dict[str, Held], answered: Callable[[bytes], bytes] = bytes
) -> AsyncGenerator[RedisRelay]:
    """Yield a relay to a port of this machine."""
    relay = RedisRelay(target, held, answered=answered)
    server = await asyncio.start_server(relay.serve, LOOPBACK, limit=PIECE)
    relay.port = int(server.sockets[0].getsockname()[1])
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
        await server.wait_closed()
