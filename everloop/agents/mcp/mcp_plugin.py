"""MCP servers as plugins. A process that only loads agents, such as a gateway, imports nothing of MCP."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from everloop.agents.hooks import HookContext
from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.plugins import Plugin
from everloop.agents.tool import DEFAULT_TIMEOUT, Tool
from everloop.runtime.outbound.policy import Headers

if TYPE_CHECKING:
    from everloop.agents.mcp.mcp_client import McpClient


def mcp(  # noqa: PLR0913 -- settings of a server and its tools, each by its name
    url: str = "",
    *,
    command: Sequence[str] = (),
    name: str = "",
    env: Mapping[str, str] | None = None,
    headers: Headers | None = None,
    tools: Sequence[str] = ("*",),
    prefix: str = "",
    timeout: timedelta = DEFAULT_TIMEOUT,
    idempotent: bool | Sequence[str] | None = None,
    needs_approval: bool | Sequence[str] | None = None,
    quick: bool | Sequence[str] | None = None,
) -> Plugin:
    """Offer the tools of an MCP server: one behind a `url` (streamable HTTP), or one that a `command` starts.

    A command is started once in each worker process, when its tools are first needed, with `env` beside
    the worker's PATH, HOME, USER, LOGNAME, SHELL and TERM. `headers` are sent with each request; a
    function of the caller's `Identity`, sync or async, gives each caller headers, and with them a
    session, of their own.

    `tools` are patterns (`*`, `?`) of the offered names; `prefix` is put before them. `name` is that of
    the plugin and of the server in errors (default: its host, or the name of the command); set it when
    an agent has two servers with the same. `timeout` limits one call (default 30 s).

    `idempotent` and `needs_approval` decide for all tools, or for those that match the patterns,
    whether a call may be repeated after a crash, and whether it needs an approval. By default the
    server's annotations decide: a tool that is read-only or idempotent may be repeated; a destructive
    one needs an approval. `quick` selects the tools among the repeatable ones that take a second at
    most, and run as quick tools (`everloop.agents.tool`; default: none).

    Raises:
        AgentDefinitionError: neither or both of url and command, or a setting that makes no sense.
    """
    definition = McpDefinition(
        url=url,
        command=command,
        name=name,
        env=env or {},
        headers=headers or {},
        tools=tools,
        prefix=prefix,
        timeout=timeout,
        idempotent=idempotent,
        needs_approval=needs_approval,
        quick=quick,
    )
    return McpServer(name=definition.label, definition=definition)


@dataclass(kw_only=True, eq=False)
class McpServer(Plugin):
    """Lists and calls the tools of an MCP server. Each process has its own connections."""

    definition: McpDefinition
    _client: "McpClient | None" = field(default=None, init=False, repr=False)

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        """Request the tools of the server.

        Raises:
            McpError: the request failed (`everloop.agents.mcp.mcp_errors`).
        """
        return await (await self._connections()).list_tools(context.auth)

    async def get_tool(self, name: str, context: HookContext) -> Tool | None:
        """Return a tool from the cached list, which is requested again only after an announced change.

        Raises:
            McpError: the request was needed and failed (`everloop.agents.mcp.mcp_errors`).
        """
        return await (await self._connections()).get_tool(name, context.auth)

    async def close(self) -> None:
        """End the sessions, and the server if a command started it. The next use starts it again."""
        client, self._client = self._client, None
        if client:
            await client.close()

    async def _connections(self) -> "McpClient":
        """Return the client; the SDK is imported in a thread, because it takes about half a second."""
        if self._client is None:
            await asyncio.to_thread(import_module, "everloop.agents.mcp.mcp_client")
            from everloop.agents.mcp.mcp_client import McpClient  # noqa: PLC0415 -- see the head of this module

            self._client = self._client or McpClient(self.definition)
        return self._client
