"""A proxy before Redis that eats answers: the command is carried out, and nobody hears of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from urllib.parse import urlsplit

from everloop.deploy.local.servers import LOOPBACK

_PIECE = 1 << 16


class AnswerEater:
    """Cuts a connection instead of passing on the answer to a request that holds `word`, `meals` times.

    With `before`, it cuts the connection without passing on the request. With `is_closing`, no connection
    comes about after such a meal.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self.word = b""
        self.meals = 0
        self.before = False
        self.is_closing = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests on, and answers back, one after the other."""
        if self.is_closing and not self.meals:
            writer.close()
            return
        from_server, to_server = await asyncio.open_connection(*self._server)
        answers = asyncio.create_task(_pass_on(from_server, writer))
        with closing(writer), closing(to_server):
            while request := await reader.read(_PIECE):
                if not (self.meals and self.word in request):
                    to_server.write(request)
                    continue
                self.meals -= 1
                answers.cancel()
                await asyncio.wait([answers])
                if not self.before:
                    to_server.write(request)
                    await from_server.read(1)  # now it is done
                break
        answers.cancel()
        await asyncio.wait([answers])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)


@asynccontextmanager
async def answer_eater(redis_url: str) -> AsyncGenerator[AnswerEater]:
    """Yield a proxy before this server; `url` is where it is."""
    address = urlsplit(redis_url)
    eater = AnswerEater(str(address.hostname), int(address.port or 0))
    server = await asyncio.start_server(eater.serve, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    eater.url = f"redis://{LOOPBACK}:{port}{address.path}"
    async with server:
        yield eater
