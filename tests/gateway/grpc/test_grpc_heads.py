"""Limits of heads of calls, which are read before authentication."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import cast

import pytest
import pytest_asyncio
import uvloop
from a2a.server.request_handlers.request_handler import RequestHandler

from everloop.gateway.auth.access import AccessControl
from everloop.gateway.bindings.grpc import GrpcServer
from everloop.gateway.bindings.grpc_front import Heads
from everloop.gateway.context import MAX_HEADERS
from everloop.gateway.settings import GatewaySettings
from tests.gateway.grpc_harness import SERVICE

# Frames of HTTP/2 (RFC 9113 §4.1), and fields as HPACK has them (RFC 7541 §6.2.1).


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _field(name: str, value: str) -> bytes:
    return b"\x40%c%s%c%s" % (len(name), name.encode(), len(value), value.encode())


_FIELDS = {
    ":path": f"{SERVICE}/GetTask",
    ":authority": "x",
    "te": "trailers",
    "content-type": "application/grpc",
    "a": "v" * 100,
}
_BEGUN = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(4, 0, 0)
    + _frame(1, 0, 1, b"\x83\x86" + b"".join(_field(name, value) for name, value in _FIELDS.items()))
)
"""The preface of a connection, and a call whose head goes on."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncGenerator[GrpcServer]:
    """A server that authenticates every caller; it answers no call of these tests."""
    server = GrpcServer(GatewaySettings(grpc_port=0, shutdown_grace=0), AccessControl())
    await server.start(cast("RequestHandler", None))
    yield server
    await server.stopped()


@pytest.mark.parametrize("count", [MAX_HEADERS + 1, 40_000])
async def test_metadata_of_many_entries_are_refused(server: GrpcServer, count: int) -> None:
    """From a client that never acknowledges the server's settings, for which gRPC bounds next to nothing.

    Each entry is a byte (RFC 7541 §6.1), and most come in CONTINUATION frames (RFC 9113 §6.10).
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_BEGUN)
    rest = b"\xbe" * count
    for start in range(0, count, 16_000):
        writer.write(_frame(9, 4 * (start + 16_000 >= count), 1, rest[start : start + 16_000]))
    answer = b""
    while b"grpc-status\x01" not in answer:
        more = await reader.read(65_536)
        assert more, answer
        answer += more
    writer.close()
    assert b"grpc-status\x018" in answer  # RESOURCE_EXHAUSTED, by us or by gRPC
    assert count > 1_000 or b"more than 400 headers" in answer


@pytest.mark.parametrize(
    "frame", [(9, 0, 1, b"\xbe" * 16_000), (9, 0, 1, b""), (1, 0, 3, b"\xbe" * 16_000), (0, 0, 1, b"x")]
)
async def test_a_head_without_end_ends_its_connection(
    server: GrpcServer, frame: tuple[int, int, int, bytes]
) -> None:
    """GRPC reads and holds nothing of it: it would take tens of MiB for a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_BEGUN)
    piece, sent = _frame(*frame), 0
    with suppress(ConnectionError):
        while sent < 1_000_000 and not reader.at_eof():
            writer.write(piece * 10)
            await writer.drain()
            sent += 10 * len(piece)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await reader.read(65_536)
    writer.close()
    assert sent < 1_000_000


async def test_heads_are_passed_on_whole() -> None:
    """Heads in any number of frames, and all other frames, pass unchanged."""
    head = _frame(1, 0, 1, b"a" * 100) + _frame(9, 0, 1) + _frame(9, 4, 1, b"b" * 20_000)
    other = _frame(0, 1, 1, b"x" * 10_000) + _frame(8, 0, 0, b"1234") + _frame(1, 5, 3, b"c" * 10)
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0) + head + other + head
    before = sent.index(head)
    for step in (1, 7, 100, 30_000):
        heads, passed = Heads(), b""
        for start in range(0, len(sent), step):
            passed += heads.pass_on(sent[start : start + step])
            assert not before < len(passed) < before + len(head)
        assert passed == sent


async def test_a_connection_beyond_the_most_is_closed() -> None:
    """And makes room when it ends: a client has one connection for all its calls."""
    settings = GatewaySettings(grpc_port=0, shutdown_grace=0)
    server = GrpcServer(settings, AccessControl(), connections=2)
    await server.start(cast("RequestHandler", None))
    opened = list[asyncio.StreamWriter]()

    async def is_served() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        opened.append(writer)
        writer.write(_BEGUN)
        with suppress(ConnectionError):
            return await reader.read(9) != b""
        return False

    served = [await is_served() for _ in range(4)]
    opened[0].close()
    async with asyncio.timeout(30):
        while not await is_served():
            pass
    await server.stopped()
    for writer in opened:
        writer.close()
    assert served == [True, True, False, False]


def test_what_comes_with_the_connection_is_passed_on() -> None:
    """The loop of gateways reads it before the server is connected."""

    async def ask() -> None:
        settings = GatewaySettings(grpc_port=0, shutdown_grace=0)
        server = GrpcServer(settings, AccessControl())
        await server.start(cast("RequestHandler", None))
        try:
            answers = await asyncio.to_thread(lambda: [_answered(server.port) for _ in range(40)])
        finally:
            await server.stopped()
        assert all(b"grpc-status" in answer for answer in answers)

    uvloop.run(ask())


def _answered(port: int) -> bytes:
    """Return the answer to a call with too many headers, all of which is sent at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(_BEGUN + _frame(9, 4, 1, b"\xbe" * (MAX_HEADERS + 1)))
        answer = b""
        while b"grpc-status" not in answer and (more := client.recv(65_536)):
            answer += more
        return answer
