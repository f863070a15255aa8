"""MCP servers as plugins. Whoever only loads agents, such as a gateway, imports nothing of MCP with this."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from everloop.agents.hooks import HookContext
from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.plugins import Plugin
from everloop.agents.tool import DEFAULT_TIMEOUT, Tool
from everloop.runtime.outbound.policy import Headers

if TYPE_CHECKING:
    from everloop.agents.mcp.client import McpClient


def mcp(  # noqa: PLR0913 -- where a server is and how its tools are offered, each by its name
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

    A command is started once in each worker process, when its tools are first needed, with `env` beside the
    worker's PATH, HOME, USER, LOGNAME, SHELL and TERM. `headers` go out with each request; a function of the
    caller's `Identity`, sync or async, gives each caller headers, and with them a session, of their own.

    `tools` are patterns (`*`, `?`) of the names that are offered; `prefix` is put before them. `name` is that
    of the plugin and of the server in errors (default: its host, or what the command is called); give one
    when an agent has two servers with the same. `timeout` bounds one call (default 30 s).

    `idempotent` and `needs_approval` say of all tools, or of those that fit the patterns, whether a call may
    be repeated after a crash, and whether people are asked first. By default the server's own annotations
    decide: what only reads, or says that it is idempotent, is; people are asked where it says that it is
    destructive. `quick` says likewise which of those that may be repeated take a second at most, and run as
    quick tools (`everloop.agents.tool`; default: none).

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
    """Lists and calls the tools of an MCP server. Its connections are those of the process that it is in."""

    definition: McpDefinition
    _client: "McpClient | None" = field(default=None, init=False, repr=False)

    async def list_tools(self, context: HookContext) -> Sequence[Tool]:
        """Ask the server for its tools.

        Raises:
            McpError: it did not tell (`everloop.agents.mcp.errors`).
        """
        return await (await self._connections()).list_tools(context.auth)

    async def get_tool(self, name: str, context: HookContext) -> Tool | None:
        """Return a tool as the server last listed it; it is asked only if it said that its list has changed.

        Raises:
            McpError: it had to be asked and did not tell (`everloop.agents.mcp.errors`).
        """
        return await (await self._connections()).get_tool(name, context.auth)

    async def close(self) -> None:
        """End the sessions, and the server if a command started it. Whoever needs it next starts it again."""
        client, self._client = self._client, None
        if client:
            await client.close()

    async def _connections(self) -> "McpClient":
        """Return what talks to the server; the SDK is imported in a thread, it takes about half a second."""
        if self._client is None:
            await asyncio.to_thread(import_module, "everloop.agents.mcp.client")
            from everloop.agents.mcp.client import McpClient  # noqa: PLC0415 -- see the head of this module

            self._client = self._client or McpClient(self.definition)
        return self._client
