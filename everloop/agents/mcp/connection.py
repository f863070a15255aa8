"""One connection to an MCP server, as the official SDK makes it."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, ServerNotification, ToolListChangedNotification

from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.http import FaultClient
from everloop.agents.mcp.stdio import running_server

READING = 30.0
"""Seconds in which a server answers whatever is not the call of a tool."""

LARGEST_EVENT = 64 * 1024 * 1024
"""Bytes of one server-sent event; an image or a file comes in one."""

for _module in ("mcp", "httpx2", "httpcore2"):
    # They log session ids, URLs with what is secret in them, and stacks; what goes wrong is told by errors.
    logging.getLogger(_module).setLevel(logging.CRITICAL)

_US = Implementation(name="everloop", version="1")


@dataclass(frozen=True)
class Watch:
    """Who hears that the server's tools have changed, and that it has ended."""

    on_change: Callable[[], None]
    on_end: Callable[[], None]


def connection_to(definition: McpDefinition, headers: Mapping[str, str], watch: Watch) -> Client:
    """Return a connection that is not open yet; it has to be opened and closed by the same task.

    The server can ask nothing of us (sampling, elicitation, roots), and its log messages are dropped.
    """

    async def hear(message: ServerNotification | Exception) -> None:
        if isinstance(message, ToolListChangedNotification):
            watch.on_change()

    return Client(
        _transport(definition, headers, watch),
        read_timeout_seconds=READING,
        message_handler=hear,
        client_info=_US,
        cache=None,
    )


def _transport(
    definition: McpDefinition, headers: Mapping[str, str], watch: Watch
) -> AbstractAsyncContextManager[Any]:
    if definition.command:
        return running_server(definition, watch.on_end)
    return _http(definition.url, headers)


@asynccontextmanager
async def _http(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    async with (
        FaultClient(headers) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST_EVENT) as streams,
    ):
        yield streams
