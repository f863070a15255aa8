"""One connection to an MCP server, with the official SDK."""

import logging
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Protocol

from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    Implementation,
    JSONRPCNotification,
    JSONRPCResponse,
    ServerNotification,
    ToolListChangedNotification,
)

from everloop.agents.mcp.http import FaultClient
from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.mcp.mcp_errors import McpUnavailableError
from everloop.agents.mcp.repair import repaired
from everloop.agents.mcp.stdio import LINE_TOO_LARGE, stdio_parameters

Message = SessionMessage | Exception


class MessageStream(Protocol):
    """Source of messages of the SDK's transports."""

    async def receive(self) -> Message: ...
    async def aclose(self) -> None: ...


class ServerStream(ObjectReceiveStream[Message]):
    """The messages of a server, with repaired results. Reports their end."""

    def __init__(
        self,
        stream: MessageStream,
        server: str,
        output_schemas: dict[str, object],
        on_end: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._server = server
        self._output_schemas = output_schemas
        self._on_end = on_end

    @property
    def last_context(self) -> Context | None:
        """The context of the last message's sender, in which the SDK handles it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Message:
        try:
            message = await self._stream.receive()
        except BaseException:
            self._on_end()
            raise
        match message:
            case SessionMessage(message=JSONRPCResponse() as response):
                response.result = repaired(response.result, self._server, self._output_schemas)
            case SessionMessage(message=JSONRPCNotification() as notice) if notice.method == LINE_TOO_LARGE:
                self._on_end()
                raise EndOfStream
            case _:
                pass
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()


READING = 30.0
"""Timeout in seconds of requests other than tool calls."""

LARGEST_EVENT = 64 * 1024 * 1024
"""Maximum bytes of one server-sent event; an image or a file comes in one."""

for _module in ("mcp", "httpx2", "httpcore2"):
    # They log session ids, URLs with secrets, and stacks; failures are reported by errors.
    logging.getLogger(_module).setLevel(logging.CRITICAL)

_US = Implementation(name="everloop", version="1")


def connection_to(
    definition: McpDefinition,
    headers: Mapping[str, str],
    *,
    output_schemas: dict[str, object],
    on_change: Callable[[], None],
    on_end: Callable[[], None],
) -> Client:
    """Return a connection that is not open yet; it has to be opened and closed by the same task.

    `output_schemas` gets those of listed tools. `on_change` is called when the server's tools have changed,
    `on_end` when it has ended. It cannot request anything of us (sampling, elicitation, roots), and its log
    messages are dropped.
    """

    async def notice(message: ServerNotification | Exception) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with _transport(definition, headers) as (read, write):
            yield ServerStream(read, definition.label, output_schemas, on_end), write

    return Client(
        transport(),
        read_timeout_seconds=READING,
        message_handler=notice,
        client_info=_US,
        cache=None,
    )


@asynccontextmanager
async def _transport(definition: McpDefinition, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    """Connect to the server, or start it and end it with the block: SIGTERM and SIGKILL follow 2 s apart.

    Its standard error goes to that of this process, even if `sys.stderr` was replaced.

    Raises:
        McpUnavailableError: the command does not exist, or no client can be made.
    """
    if definition.command:
        async with stdio_client(stdio_parameters(definition), sys.__stderr__ or sys.stderr) as streams:
            yield streams
        return
    async with (
        _http_client(definition, headers) as client,
        streamable_http_client(
            definition.url, http_client=client, max_sse_event_size=LARGEST_EVENT
        ) as streams,
    ):
        yield streams


def _http_client(definition: McpDefinition, headers: Mapping[str, str]) -> FaultClient:
    try:
        return FaultClient(headers)
    except OSError as error:
        raise McpUnavailableError(
            f"the MCP server {definition.label!r} cannot be asked: SSL_CERT_FILE or SSL_CERT_DIR names "
            f"certificates that cannot be read ({error.strerror}); correct or unset it"
        ) from None
