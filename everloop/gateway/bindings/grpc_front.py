"""Proxy in front of the gRPC server: it bounds the heads of calls, which arrive before authentication.

The gRPC server buffers tens of MiB of a head without end (CONTINUATION frames of HTTP/2). Its own limit holds
only for clients that acknowledge it. So it listens on a socket in a private directory, and receives complete
heads from this proxy.
"""

import asyncio
import itertools
import os
import socket
import tempfile
from contextlib import suppress
from typing import cast

from everloop.gateway.context import MAX_HEAD_BYTES

# Frames (RFC 9113 §4.1): 9 bytes that name length, type, flags and stream; then as many as the length says.

_PREFACE_BYTES = 24
_FRAME_BYTES = 9
_HEADERS, _CONTINUATION = 1, 9
_END_HEADERS = 4

MOST_BYTES = 2 * MAX_HEAD_BYTES
"""Bytes of one head. A head between the server's own limit and this one is refused with a status."""

FILES = 3
"""File descriptors per connection: that of the client, and both ends of that to the server."""


class HeadError(Exception):
    """The head of a call is too large, or interrupted by another frame."""


class Heads:
    """Passes on the frames of one connection, each head once it is complete."""

    def __init__(self) -> None:
        self._held = b""
        self._looked = self._passed = 0
        """Up to where frames have been looked at, and may pass."""
        self._rest = _PREFACE_BYTES
        """Bytes to come that may pass whatever they are."""

    def pass_on(self, data: bytes) -> bytes:
        """Return what may be sent on.

        Raises:
            HeadError: nothing more may.
        """
        self._held += data
        while self._look():
            pass
        passed, self._held = self._held[: self._passed], self._held[self._passed :]
        self._looked -= self._passed
        self._passed = 0
        return passed

    def _look(self) -> bool:
        """Look at what comes next; return whether it was all there."""
        left = len(self._held) - self._looked
        if self._rest and left:
            step = min(self._rest, left)
            self._rest -= step
            self._looked = self._passed = self._looked + step
            return True
        if left < _FRAME_BYTES:
            return False
        frame = self._held[self._looked : self._looked + _FRAME_BYTES]
        size, kind, flags = _FRAME_BYTES + int.from_bytes(frame[:3]), frame[3], frame[4]
        if kind not in {_HEADERS, _CONTINUATION}:
            self._rest = size
            if self._passed != self._looked:
                raise HeadError
            return True
        if self._looked + size - self._passed > MOST_BYTES:
            raise HeadError
        if left < size:
            return False
        self._looked += size
        if flags & _END_HEADERS:
            self._passed = self._looked
        return True


class GrpcFront:
    """Takes connections, and passes them on to the server that listens at `address`.

    It closes those beyond so many `connections`; None: it takes all.
    """

    def __init__(self, connections: int | None) -> None:
        # Only its user can reach what listens in it.
        self._directory = tempfile.TemporaryDirectory(prefix="everloop-grpc-", ignore_cleanup_errors=True)
        self._socket = f"{self._directory.name}/s"
        self._most = connections
        self._numbers = itertools.count()
        self._hosts: dict[str, str] = {}
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where the server has to listen, as gRPC has it."""
        return f"unix:{self._socket}"

    def host_of(self, peer: str) -> str:
        """Return the address of the client that the server calls its peer."""
        return self._hosts.get(peer.removeprefix("unix:"), "")

    async def start(self, listener: socket.socket) -> None:
        """Take connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), sock=listener)

    def close(self) -> None:
        """Take no more connections."""
        if self._server:
            self._server.close()

    def remove(self) -> None:
        """Remove the directory; the server has stopped."""
        self._directory.cleanup()

    def add(self, host: str) -> str:
        """Return what the server will call the peer of a new connection; empty: there is no room for it."""
        if self._most is not None and len(self._hosts) >= self._most:
            return ""
        name = f"{self._directory.name}/{next(self._numbers)}"
        self._hosts[name] = host
        return name

    def forget(self, name: str) -> None:
        """Forget an ended connection."""
        self._hosts.pop(name, None)

    async def connect(self, name: str, served: "_Side") -> None:
        """Connect to the server under this name."""
        loop, own = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            own.setblocking(False)
            own.bind(name)
            await loop.sock_connect(own, self._socket)
            await loop.create_unix_connection(lambda: served, sock=own)
        except BaseException:
            own.close()
            raise
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)  # noqa: PTH108 -- it blocks for microseconds, as `bind` does


class _Side(asyncio.Protocol):
    """One end of a proxied connection; `other` is the other one."""

    other: "_Side"
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other.transport and not self.other.transport.is_closing():
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other.transport:
            self.other.transport.close()


class _Client(_Side):
    """The side of a client."""

    def __init__(self, front: GrpcFront) -> None:
        self.other = _Side()
        self.other.other = self
        self._front = front
        self._heads = Heads()
        self._early = b""
        self._name = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, *_ = transport.get_extra_info("peername") or ("",)
        self._name = self._front.add(host)
        self._connecting = asyncio.create_task(self._connect(cast("asyncio.Transport", transport)))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            if not self._name:
                raise ConnectionRefusedError
            await self._front.connect(self._name, self.other)
        except OSError:  # there is no room, or the server has stopped
            transport.abort()
        if self.other.transport and transport.is_closing():
            self.other.transport.close()
        elif self.other.transport:
            self.other.transport.write(self._early)
            transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            passed = self._heads.pass_on(data)
        except HeadError:
            if self.transport:
                self.transport.abort()
            return
        if self.other.transport:
            super().data_received(passed)
        elif self.transport:
            self._early += passed
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.forget(self._name)
        super().connection_lost(exc)
