"""Speaks TLS in front of a server that does not."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from everloop.deploy.local.servers import LOOPBACK


@asynccontextmanager
async def running_tls_proxy(port: int, context: ssl.SSLContext) -> AsyncGenerator[int]:
    """Yield the port at which TLS is spoken for the server at `port`; both are on this machine."""
    relays: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(LOOPBACK, port)
        for source, target in ((reader, back_writer), (back_reader, writer)):
            relay = asyncio.create_task(_relay(source, target))
            relays.add(relay)
            relay.add_done_callback(relays.discard)

    server = await asyncio.start_server(serve, LOOPBACK, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for relay in relays:
        relay.cancel()
    await asyncio.gather(*relays, return_exceptions=True)


async def _relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    except (OSError, ssl.SSLError):
        pass
    finally:
        target.close()
