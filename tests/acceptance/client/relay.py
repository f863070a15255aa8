"""A TCP relay before a server that cuts connections in the middle of what the server answers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from everloop.deploy.local.servers import LOOPBACK


@dataclass
class CuttingRelay:
    """Cuts each connection when so many bytes of answers have passed since it was told; None: cuts none.

    `budgets` are those of the connections to come, one after another; then nothing is cut any more.
    """

    url: str = ""
    budgets: list[int] = field(default_factory=list[int])
    cuts: int = 0

    async def serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side, or we, end it."""
        back_reader, back_writer = await asyncio.open_connection(LOOPBACK, port)
        pumps = [
            asyncio.create_task(self._ask(reader, back_writer)),
            asyncio.create_task(self._answer(back_reader, writer)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for each in (writer, back_writer):
            each.transport.abort()

    async def _ask(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        budget: int | None = None
        while data := await source.read(65_536):
            if budget is None and self.budgets:
                budget = self.budgets.pop(0)
            if budget is not None and len(data) > budget:
                target.write(data[:budget])
                with suppress(OSError):
                    await target.drain()
                self.cuts += 1
                return
            budget = None if budget is None else budget - len(data)
            target.write(data)


@asynccontextmanager
async def running_relay(port: int) -> AsyncGenerator[CuttingRelay]:
    """Relay to the server at a port of this machine."""
    relay = CuttingRelay()
    async with await asyncio.start_server(
        lambda reader, writer: relay.serve(port, reader, writer), LOOPBACK, 0
    ) as server:
        relay.url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        yield relay
