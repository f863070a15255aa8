"""Server-sent events as a plain HTTP client reads them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from a2a.types.a2a_pb2 import StreamResponse
from google.protobuf.json_format import ParseDict

from tests.gateway.harness import RunningGateway


@dataclass(frozen=True)
class ServerSent:
    """One event; `id` is empty if it has none."""

    id: str
    response: StreamResponse

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.response.artifact_update.artifact.parts)


class NotStreamedError(Exception):
    """The gateway answered with an error of JSON-RPC instead."""


@asynccontextmanager
async def stream(
    gateway: RunningGateway, method: str, params: object, last_id: str = "", **headers: str
) -> AsyncGenerator[AsyncGenerator[ServerSent]]:
    """Yield the events of a stream, behind `last_id` if there is one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    named = {**headers, "Last-Event-ID": last_id} if last_id else headers
    async with gateway.http.stream("POST", "/", json=body, headers=named) as response:
        if not response.headers["Content-Type"].startswith("text/event-stream"):
            raise NotStreamedError((await response.aread()).decode())
        yield _events(_lines(response.aiter_text()))


async def _lines(texts: AsyncIterator[str]) -> AsyncGenerator[str]:
    """Yield the lines of a stream as HTML §9.2.5 ends them: not where str.splitlines() does, nor httpx."""
    rest = ""
    async for text in texts:
        *lines, rest = (rest + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            yield line


async def _events(lines: AsyncIterator[str]) -> AsyncGenerator[ServerSent]:
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            result = json.loads(fields["data"])["result"]
            yield ServerSent(fields.get("id", ""), ParseDict(result, StreamResponse()))
            fields = {}


async def all_of(
    gateway: RunningGateway, method: str, params: object, last_id: str = "", **headers: str
) -> list[ServerSent]:
    """Return all events of a stream."""
    async with stream(gateway, method, params, last_id, **headers) as events:
        return [event async for event in events]
