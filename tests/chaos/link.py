"""A TCP relay between processes and a server, which delays, holds or cuts what passes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from everloop.deploy.local.servers import LOOPBACK

PIECE = 1 << 18


@dataclass
class Link:
    """`delay` is in seconds, for each piece in each direction; while `flows` is not set nothing passes."""

    target: int
    port: int = 0
    delay: float = 0
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    _held: asyncio.Event = field(default_factory=asyncio.Event)
    _serving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def until_held(self) -> None:
        """Wait until something has come that does not pass."""
        await self._held.wait()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._open:
            writer.transport.abort()

    async def close(self) -> None:
        """Break all connections, and wait until nothing serves one."""
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
            to_server, from_server = reader, writer
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:
            writer.transport.abort()
            return
        ends = {from_server, server_writer}
        self._open |= ends
        pumps = [
            asyncio.create_task(self._pump(to_server, server_writer)),
            asyncio.create_task(self._pump(server_reader, from_server)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                end.close()
            self._open -= ends

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(PIECE):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if not self.flows.is_set():
                    self._held.set()
                    await self.flows.wait()
                sink.write(piece)
                await sink.drain()


@asynccontextmanager
async def running_link(target: int) -> AsyncGenerator[Link]:
    """Yield a link to a port of this machine."""
    link = Link(target)
    link.flows.set()
    server = await asyncio.start_server(link.serve, LOOPBACK)
    link.port = int(server.sockets[0].getsockname()[1])
    try:
        yield link
    finally:
        server.close()
        await link.close()
        await server.wait_closed()
