"""A server answers only to names of this machine."""

import asyncio

import pytest

from everloop.local.host_check import answering_to_own_names
from everloop.local.servers import LOOPBACK, free_port
from everloop.local.stack_errors import LocalStackError
from everloop.runtime.telemetry.telemetry_settings import Address

BODY = b"x" * 200_000


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo all bytes, to the end."""
    writer.write(await reader.read())
    writer.close()


async def _ask(place: Address, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(sent)
    writer.write_eof()
    answered = await reader.read()
    writer.close()
    return answered


@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [
        (b"Host: localhost:8233", True),
        (b"host:127.0.0.1:8233", True),
        (b"HOST: [::1]:8233", True),
        (b"Host: UI.example", True),
        (b"Host: pages.example", False),
        (b"Host: localhost.pages.example", False),
        (b"Host: 127.0.0.1.pages.example:8233", False),
        (b"Host: pages.example\r\nHost: localhost", False),
        (b"Host: localhost@pages.example", False),
        (b"Host: [", False),
        (b"Host:", False),
        (b"X: y", False),
    ],
)
async def test_only_names_that_are_ours_are_answered(fields: bytes, *, is_ours: bool) -> None:
    """Allowed requests and answers pass unchanged; a page that calls by another name gets nothing of it."""
    place = Address(LOOPBACK, free_port())
    sent = b"POST / HTTP/1.1\r\n" + fields + b"\r\n\r\n" + BODY * is_ours
    async with await asyncio.start_server(_echo, LOOPBACK) as server:
        behind = Address(*server.sockets[0].getsockname())
        async with answering_to_own_names(place, behind, {"ui.example"}):
            answered = await _ask(place, sent)
    if is_ours:
        assert answered == sent
    else:
        assert answered.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")


async def test_what_is_not_there_is_not_answered() -> None:
    """The connection ends, and the next one is served."""
    place, behind = Address(LOOPBACK, free_port()), Address(LOOPBACK, free_port())
    async with answering_to_own_names(place, behind):
        for sent in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\n", b"x" * 100_000):
            assert await _ask(place, sent) == b""


async def test_a_place_that_is_taken_is_named() -> None:
    """The error names the port to free."""
    async with await asyncio.start_server(_echo, LOOPBACK) as server:
        place = Address(*server.sockets[0].getsockname())
        with pytest.raises(LocalStackError, match=f"cannot listen on {place}"):
            async with answering_to_own_names(place, place):
                pass
