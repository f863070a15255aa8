"""Blocks web pages of other sites from a server that accepts every Host, as Temporal's UI does.

A page in a browser may call this machine. Once it has pointed its own name here (DNS rebinding), it may
also read the responses. That name is in Host.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, closing, suppress
from urllib.parse import urlsplit

from everloop.local.stack_errors import LocalStackError
from everloop.runtime.outbound.policy import is_loopback
from everloop.runtime.telemetry.telemetry_settings import Address

MAX_HEAD_BYTES = 65_536
HEAD_SECONDS = 30.0
PIECE = 65_536

REFUSAL = (
    b"HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this server is not called that; call it localhost, or set EVERLOOP_TEMPORAL_UI_URL\n"
)


@asynccontextmanager
async def answering_to_own_names(
    place: Address, server: Address, names: Collection[str] = ()
) -> AsyncGenerator[None]:
    """Forward connections from an address to a server, if Host is a name of this machine or one of `names`.

    Raises:
        LocalStackError: the address is in use.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            host = _host_of(head)
            if not (is_loopback(host) or host in names):
                writer.write(REFUSAL)
                await writer.drain()
                return
            # Later requests have the same Host: a browser has separate connections for each.
            answers, asks = await asyncio.open_connection(*server)
            with closing(asks):
                asks.write(head)
                await asyncio.gather(_copy(reader, asks), _copy(answers, writer))

    try:
        listening = await asyncio.start_server(serve, *place, limit=MAX_HEAD_BYTES)
    except OSError as error:
        raise LocalStackError(f"cannot listen on {place}: {error.strerror or error}") from error
    try:
        yield
    finally:
        listening.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        target.write(piece)
        await target.drain()
    target.write_eof()


def _host_of(head: bytes) -> str:
    """Return the host of a request; an impossible one if it has several, or none."""
    fields = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
    hosts = [value.strip() for name, _, value in fields if name.lower() == "host"]
    try:
        return urlsplit(f"//{hosts[0]}").hostname or "" if len(hosts) == 1 else ""
    except ValueError:
        return ""
