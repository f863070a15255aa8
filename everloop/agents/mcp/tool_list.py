"""What tools an MCP server has, as far as a session knows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context

from mcp_types import ListToolsResult, Tool

from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.errors import McpProtocolError

PAGES = 100
"""Pages of a list of tools; a server that has more repeats itself."""

KNOWN_FOR = 60.0
"""Seconds for which a list is good where nobody tells us that it has changed."""

AskPage = Callable[[str | None], Awaitable[ListToolsResult]]
"""Asks the server for the page at a cursor; None is the first one."""


class ToolList:
    """The tools that are offered, by their names at the server; asked for when they may have changed.

    `is_told` says whether the server tells of changes; else a list is good for `known_for` seconds (60).
    """

    def __init__(self, server: McpDefinition, ask: AskPage, *, known_for: float = KNOWN_FOR) -> None:
        self.is_told = False
        self._server = server
        self._ask = ask
        self._known_for = known_for
        self._known: Mapping[str, Tool] | None = None
        self._known_until = 0.0
        self._changes = 0
        self._asking: asyncio.Task[Mapping[str, Tool]] | None = None

    def known(self, name: str) -> Tool | None:
        """Return a tool as last heard, without asking."""
        return (self._known or {}).get(name)

    def forget(self) -> None:
        """Ask again before the list is used next."""
        self._known = None
        self._changes += 1

    async def get(self) -> Mapping[str, Tool]:
        """Return the tools as last heard, if that is still good.

        Raises:
            McpError: the server had to be asked and did not tell.
        """
        expired = not self.is_told and asyncio.get_running_loop().time() >= self._known_until
        return await self.ask() if self._known is None or expired else self._known

    async def ask(self) -> Mapping[str, Tool]:
        """Ask the server, together with others who are asking.

        Raises:
            McpError: it did not tell.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._all_pages(), context=Context())
            self._asking.add_done_callback(_look_at)
        # Others may wait for the same list: who is cancelled does not take it away from them.
        return await asyncio.shield(self._asking)

    async def _all_pages(self) -> Mapping[str, Tool]:
        changes = self._changes
        found = await self._pages()
        if changes == self._changes:
            self._known = found
            self._known_until = asyncio.get_running_loop().time() + self._known_for
        return found

    async def _pages(self) -> Mapping[str, Tool]:
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._ask(cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return {tool.name: tool for tool in found if _can_be_called(tool, self._server)}
        raise McpProtocolError(
            f"the list of tools of the MCP server {self._server.label!r} does not end; it has {PAGES} pages"
        )


def _can_be_called(tool: Tool, server: McpDefinition) -> bool:
    """Whether a tool is offered; one that only runs as a task of the server's own kind cannot be."""
    runs_as_task = tool.execution is not None and tool.execution.task_support == "required"
    return server.offers(tool.name) and not runs_as_task


def _look_at(task: asyncio.Task[Mapping[str, Tool]]) -> None:
    """Take notice of an error that nobody may be waiting for any more."""
    if not task.cancelled():
        task.exception()
