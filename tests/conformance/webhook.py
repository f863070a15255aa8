"""A client's webhook: a server of this process that keeps what it is sent."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from everloop.deploy.local.servers import LOOPBACK
from tests.support.servers.scripted_openai import QuietServer


@dataclass(frozen=True)
class Notification:
    """One request: where it went, its headers (names in small letters) and its body."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Webhook:
    """What arrived, in order."""

    url: str
    received: list[Notification] = field(default_factory=list[Notification])
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def at(self, path: str) -> list[Notification]:
        """Return what went to one path."""
        return [one for one in self.received if one.path == path]

    async def until(self, is_it: Callable[[Notification], bool]) -> Notification:
        """Wait for a notification, or return it if it is there."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: any(map(is_it, self.received)))
        return next(filter(is_it, self.received))

    async def take(self, request: Request) -> Response:
        """Keep a notification and acknowledge it."""
        body = json.loads(await request.body())
        async with self._arrived:
            self.received.append(Notification(request.url.path, dict(request.headers), body))
            self._arrived.notify_all()
        return Response(status_code=204)


@asynccontextmanager
async def running_webhook() -> AsyncGenerator[Webhook]:
    """Serve a webhook until the block ends; every path is one."""
    listener = socket.create_server((LOOPBACK, 0))
    webhook = Webhook(f"http://{LOOPBACK}:{listener.getsockname()[1]}")
    app = Starlette(routes=[Route("/{path:path}", webhook.take, methods=["POST"])])
    server = QuietServer(uvicorn.Config(app, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield webhook
    finally:
        server.should_exit = True
        await serving
        listener.close()
