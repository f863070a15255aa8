"""A session with an MCP server, shared by all calls that go out with the same headers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context

import structlog
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CallToolResult, ListToolsResult, ReadResourceResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from everloop.agents.mcp.concealment import Concealment
from everloop.agents.mcp.connection import Watch, connection_to
from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.errors import (
    McpError,
    McpLostError,
    McpProtocolError,
    McpTimeoutError,
    McpUnavailableError,
)
from everloop.agents.mcp.failures import explained
from everloop.agents.mcp.spans import mcp_span, record_result
from everloop.agents.mcp.tool_list import ToolList
from everloop.runtime.foreign_schemas import SchemaUnfitError, find_misfits_soon

OPENING = 50.0
"""Seconds in which a server has to be started, or reached, and to say what it can; a task waits 60 for its
tools."""

LISTENING_AGAIN = 5.0
"""Seconds until a server is asked again to tell of changes, after it stopped doing so."""

_log = structlog.get_logger()


class McpSession:
    """A connection that one task of its own opens, holds and closes, as the SDK wants it.

    It begins to open at once. `users` is how many calls are in it; once it `has_ended`, it takes no new ones.
    `tools` are those that the server offers in it.
    """

    def __init__(self, server: McpDefinition, headers: Mapping[str, str]) -> None:
        self.users = 0
        self.has_ended = False
        self.concealment = Concealment(server.url, headers, server.env)
        self._server = server
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leaves = asyncio.Event()
        self.tools = ToolList(server, self._page)
        connection = connection_to(server, headers, Watch(on_change=self.tools.forget, on_end=self.leave))
        # Of the caller that happened to come first, nothing may stick to it: neither its trace nor its log.
        self.owner = asyncio.create_task(self._hold(connection), context=Context())

    def retire(self) -> None:
        """Let it end as soon as nobody uses it."""
        self.has_ended = True
        if not self.users:
            self._leaves.set()

    def leave(self) -> None:
        """Let it end at once; calls that are in it are lost."""
        self.has_ended = True
        self._leaves.set()

    async def call(
        self, name: str, arguments: dict[str, JsonValue], progress: ProgressFnT, seconds: float
    ) -> CallToolResult:
        """Call a tool; a call that is cancelled, or takes too long, is cancelled at the server.

        Raises:
            McpError: it came to no result.
        """
        async with self._asking() as client:
            with mcp_span(self._server, client.protocol_version, "tools/call", name) as span:
                result = await client.call_tool(
                    name, arguments, read_timeout_seconds=seconds, progress_callback=progress
                )
                record_result(span, result)
        if not result.is_error:
            await self._check(name, result)
        return result

    async def _check(self, name: str, result: CallToolResult) -> None:
        """Check a structured result against the schema that the server gives for it.

        Raises:
            McpProtocolError: it does not fit, or cannot be checked.
        """
        tool = self.tools.known(name)
        if tool is None or tool.output_schema is None:
            return
        flaw = ""
        try:
            if misfits := await find_misfits_soon(tool.output_schema, [result.structured_content]):
                flaw = f"it breaks the rule {misfits[0].rule} at {misfits[0].json_path}"
        except SchemaUnfitError as error:
            flaw = f"it cannot be checked: {error}"
        if flaw:
            raise McpProtocolError(
                f"the structured result of {name} of the MCP server {self._server.label!r} does not fit the "
                f"schema that the server gives for it: {flaw}"
            )

    async def read(self, uri: str) -> ReadResourceResult:
        """Read a resource.

        Raises:
            McpError: it could not be read.
        """
        async with self._asking() as client:
            with mcp_span(self._server, client.protocol_version, "resources/read"):
                return await client.read_resource(uri)

    async def _hold(self, connection: Client) -> None:
        problem: McpError | None = None
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(OPENING):
                    client = await stack.enter_async_context(connection)
                # The SDK would check results with Python's `re`, in this thread; we do it in `call`.
                client.session.validate_tool_result = _leave_unchecked
                self._opened.set_result(client)
                await self._stay(client)
        except Exception as error:  # noqa: BLE001 -- whatever ends the connection, its users read why
            problem = explained(error, self._server.label, self.concealment.in_error)
            _log.warning("MCP session ended", server=self._server.label, error_type=type(problem).__name__)
        finally:
            self.has_ended = True
            if not self._opened.done():
                self._opened.set_exception(_not_opened(problem, self._server))
                self._opened.exception()  # perhaps nobody waits for it any more

    async def _stay(self, client: Client) -> None:
        tools = client.server_capabilities.tools
        tells = bool(tools and tools.list_changed)
        if not tells or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # Over HTTP it tells on a stream that may have broken off without our hearing of it.
            self.tools.is_told = tells and bool(self._server.command)
            await self._leaves.wait()
            return
        listening = asyncio.create_task(self._listen(client))
        try:
            await self._leaves.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        """Hear of changes of the tools; from MCP 2026-07-28 on a client has to ask for that."""
        while True:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    self.tools.is_told = True
                    self.tools.forget()  # nobody told us what changed before
                    async for _ in changes:
                        self.tools.forget()
            self.tools.is_told = False
            await asyncio.sleep(LISTENING_AGAIN)

    async def _page(self, cursor: str | None) -> ListToolsResult:
        async with self._asking() as client:
            return await client.list_tools(cursor=cursor)

    @asynccontextmanager
    async def _asking(self) -> AsyncGenerator[Client]:
        """Yield the open connection; errors of the SDK become ours, without its stack."""
        client = await asyncio.shield(self._opened)
        try:
            yield client
        except Exception as error:  # noqa: BLE001 -- the SDK has no error that all others are of
            raise explained(error, self._server.label, self.concealment.in_error) from None


async def _leave_unchecked(name: str, result: CallToolResult) -> None:
    """Stand in for the SDK's check of structured results."""


def _not_opened(problem: McpError | None, server: McpDefinition) -> McpError:
    if isinstance(problem, McpLostError):
        advice = "run its command by hand to see why" if server.command else "see what its log says"
        return McpUnavailableError(f"the MCP server {server.label!r} ended while it was opened; {advice}")
    if isinstance(problem, McpTimeoutError):
        return McpUnavailableError(
            f"the MCP server {server.label!r} did not answer within {OPENING:g} s; see that it runs and "
            "speaks MCP"
        )
    return problem or McpUnavailableError(f"the MCP server {server.label!r} is closed; the worker stops")
