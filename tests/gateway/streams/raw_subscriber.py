"""A subscriber on a bare socket, which reads as much as the test lets it, and may leave without a word."""

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

_EVENT = re.compile(
    rb"(?:id: (?P<id>[^\r\n]*)\r\n)?data: (?P<data>[^\r\n]*)\r\n(?:id: (?P<late>[^\r\n]*)\r\n)?\r\n"
)


@dataclass(frozen=True)
class RawEvent:
    """A server-sent event as it came."""

    id: str
    data: str

    @property
    def text(self) -> str:
        """What it adds to the answer of the task."""
        artifact = json.loads(self.data)["result"].get("artifactUpdate", {}).get("artifact", {})
        return "".join(part["text"] for part in artifact.get("parts", ()))


class RawSubscriber:
    """Reads server-sent events from a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    async def next(self) -> RawEvent | None:
        """Return the next event, None at the end of the stream."""
        while not (found := _EVENT.search(self._buffer)):
            received = await self._reader.read(65_536)
            if not received:
                return None
            self._buffer += received
        self._buffer = self._buffer[found.end() :]
        event_id = found["id"] or found["late"] or b""
        return RawEvent(event_id.decode(), found["data"].decode())

    async def rest(self) -> list[RawEvent]:
        """Return all events up to the end of the stream."""
        events: list[RawEvent] = []
        while event := await self.next():
            events.append(event)
        return events

    def reset(self) -> None:
        """Drop the connection at once, as a client does that dies (RST instead of FIN)."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def subscription(task_id: str) -> bytes:
    """Return the body of a SubscribeToTask request."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    return json.dumps(call).encode()


@asynccontextmanager
async def subscriber(url: str, task_id: str, last_id: str = "") -> AsyncGenerator[RawSubscriber]:
    """Subscribe to a task, behind `last_id` if there is one; hang up at the end.

    The receive buffer is small: a server soon notices that nobody reads.
    """
    address, body = urlsplit(url), subscription(task_id)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    # The limit of the reader keeps it from taking more off the socket than the test asks for.
    reader, writer = await asyncio.open_connection(sock=sock, limit=4_096)
    resume = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
    head = (
        f"POST / HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"{resume}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    try:
        yield RawSubscriber(reader, writer)
    finally:
        writer.close()
