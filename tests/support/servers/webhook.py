"""A webhook on a port of its own that accepts notifications, or follows its script."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal, Self

from pydantic import JsonValue

from everloop.local.servers import LOOPBACK

CRLF = "\r\n"

Step = int | tuple[int, Mapping[str, str]] | Literal["hang", "close"]
"""A status to answer with, and headers; or no answer: for ever, or with the end of the connection."""


@dataclass(frozen=True)
class Notification:
    """A received notification. Names of headers are in lower case."""

    target: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, JsonValue]:
        body: JsonValue = json.loads(self.content)
        assert isinstance(body, dict)
        return body

    @property
    def state(self) -> str:
        """The notified state, of 1.0 as of 0.3; empty for an artifact."""
        told = self.body.get("statusUpdate") or self.body.get("task") or self.body
        assert isinstance(told, dict)
        status = told.get("status")
        return str(status["state"]) if isinstance(status, dict) else ""

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Webhook:
    """`script` has the next answers; when it is empty, the answer is 204."""

    script: list[Step] = field(default_factory=list[Step])
    taken: list[Notification] = field(default_factory=list[Notification])
    refused: list[Notification] = field(default_factory=list[Notification])
    port: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/hook"

    @property
    def states(self) -> list[str]:
        """The notified states, in the order of their acceptance."""
        return [state for each in self.taken if (state := each.state)]

    async def start(self) -> Self:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port, ssl=self.tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def stop(self) -> None:
        """Refuse connections."""
        assert self._server
        # CPython 3.11 leaves a connection open that it has accepted without a transport when a server closes.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener)
        await asyncio.sleep(0)
        self._server.close()
        await self._server.wait_closed()

    async def until(self, is_so: Callable[["Webhook"], bool]) -> None:
        """Wait until a condition holds."""
        async with self._changed:
            await self._changed.wait_for(lambda: is_so(self))

    async def until_delivered(self, *states: str) -> None:
        """Wait until the last notified states are these."""
        await self.until(lambda hook: hook.states[-len(states) :] == list(states))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if notification := await _read(reader):
                await self._answer(notification, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sender was killed
        finally:
            writer.close()

    async def _answer(
        self, notification: Notification, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        step: Step = self.script.pop(0) if self.script else HTTPStatus.NO_CONTENT
        status, headers = step if isinstance(step, tuple) else (step, dict[str, str]())
        is_taken = isinstance(status, int) and 200 <= status < 300
        async with self._changed:
            (self.taken if is_taken else self.refused).append(notification)
            self._changed.notify_all()
        if status == "hang":
            await reader.read()
        elif status != "close":
            lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write((CRLF.join([*lines, "Content-Length: 0", "", ""])).encode())
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Notification | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split(CRLF)
    target = head[0].split(" ")[1]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
    return Notification(target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def running_webhook(*script: Step, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Webhook]:
    """Yield a webhook that gives these answers, and then accepts all."""
    hook = await Webhook(list(script), tls=tls).start()
    try:
        yield hook
    finally:
        await hook.stop()


def artifacts_of(notifications: Sequence[Notification]) -> list[JsonValue]:
    """Return the notified artifacts."""
    updates = [each.body["artifactUpdate"] for each in notifications if "artifactUpdate" in each.body]
    return [update["artifact"] for update in updates if isinstance(update, dict)]
