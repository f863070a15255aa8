"""A server with answers that become much larger than their transfer, or never end."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

CHUNK = 65_536


@dataclass
class Bomb:
    """Answers each request with `repeated` times `piece`; `sent` is the most that was sent of an answer."""

    url: str = ""
    content_type: str = "application/json"
    encoding: str = ""
    piece: bytes = b""
    repeated: int = 1
    sent: int = 0
    asked: list[bytes] = field(default_factory=list[bytes])

    def compress(self, content: bytes) -> None:
        """Answer with this content, compressed."""
        self.piece, self.repeated, self.encoding = gzip.compress(content), 1, "gzip"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        encoding = f"Content-Encoding: {self.encoding}\r\n" if self.encoding else ""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {self.content_type}\r\n{encoding}Connection: close\r\n\r\n"
        writer.write(head.encode())
        sent = 0
        try:
            for _ in range(self.repeated):
                writer.write(self.piece)
                await writer.drain()
                sent += len(self.piece)
                self.sent = max(self.sent, sent)
        except ConnectionError:
            pass
        writer.close()


@asynccontextmanager
async def running_bomb() -> AsyncGenerator[Bomb]:
    """Serve one on a free port."""
    bomb = Bomb()
    server = await asyncio.start_server(bomb.serve, "127.0.0.1", 0)
    async with server:
        bomb.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield bomb
