"""Sessions of a worker process with one MCP server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from typing import cast

import structlog
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CallToolResult, ListToolsResult, ReadResourceResult, Tool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue
from pydantic import JsonValue, ValidationError

from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.mcp.mcp_errors import (
    McpError,
    McpLostError,
    McpProtocolError,
    McpTimeoutError,
    McpUnavailableError,
    mcp_error,
    misshapen,
)
from everloop.agents.mcp.mcp_results import Concealment
from everloop.agents.mcp.transports import connection_to
from everloop.runtime.schema_validation import SchemaUnfitError, find_schema_violations_soon
from everloop.runtime.telemetry.instruments import fail_span, server_of, span_without_content

# The span around a request (OpenTelemetry semantic conventions for MCP).

TOOL_ERROR = "tool_error"
"""`error.type` of a tool with an error in its result, as in the conventions."""


def mcp_span(
    server: McpDefinition, protocol: str, method: str, tool: str = ""
) -> AbstractContextManager[Span]:
    """Trace one request; the SDK sends its trace context in `_meta`, and HTTP in a header.

    The span records neither arguments nor results, and of an exception only the type. The operation name
    `execute_tool` is that of the span around it, the tool call's, so that the call is not counted twice.
    """
    attributes: dict[str, AttributeValue] = {
        "mcp.method.name": method,
        "mcp.protocol.version": protocol,
        **_address(server),
    }
    if tool:
        attributes["gen_ai.tool.name"] = tool
    return span_without_content(f"{method} {tool}".rstrip(), SpanKind.CLIENT, attributes, _error_type)


def _error_type(error: BaseException) -> str:
    return str(error.error.code) if isinstance(error, MCPError) else type(error).__qualname__


def _address(server: McpDefinition) -> dict[str, AttributeValue]:
    if server.command:
        return {"network.transport": "pipe"}
    return {"network.transport": "tcp", "network.protocol.name": "http", **server_of(server.url)}


# Cached list of the tools of an MCP server.

PAGES = 100
"""Maximum pages of a list of tools; a longer list counts as endless."""

CACHE_SECONDS = 60.0
"""Lifetime of a list in seconds, if the server does not announce changes."""

AskPage = Callable[[str | None], Awaitable[ListToolsResult]]
"""Requests the page at a cursor from the server; None is the first one."""


class ToolList:
    """Cache of the offered tools, by their names at the server; requested when they may have changed.

    `announces_changes`: the server announces changes; else a list expires after `CACHE_SECONDS` seconds.
    """

    def __init__(self, server: McpDefinition, ask: AskPage) -> None:
        self.announces_changes = False
        self._server = server
        self._ask = ask
        self._cached: Mapping[str, Tool] | None = None
        self._cached_until = 0.0
        self._changes = 0
        self._asking: asyncio.Task[Mapping[str, Tool]] | None = None

    def forget(self) -> None:
        """Invalidate the cache, so that the list is requested before its next use."""
        self._cached = None
        self._changes += 1

    async def get(self) -> Mapping[str, Tool]:
        """Return the tools from the cache, if it is still valid.

        Raises:
            McpError: the request was needed and failed.
        """
        expired = not self.announces_changes and asyncio.get_running_loop().time() >= self._cached_until
        return await self.ask() if self._cached is None or expired else self._cached

    async def ask(self) -> Mapping[str, Tool]:
        """Request the list, shared with concurrent callers.

        Raises:
            McpError: the request failed.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._all_pages(), context=Context())
            self._asking.add_done_callback(_look_at)
        # Others may wait for the same list: the cancellation of one caller must not end it.
        return await asyncio.shield(self._asking)

    async def _all_pages(self) -> Mapping[str, Tool]:
        changes = self._changes
        found = await self._pages()
        if changes == self._changes:
            self._cached = found
            self._cached_until = asyncio.get_running_loop().time() + CACHE_SECONDS
        return found

    async def _pages(self) -> Mapping[str, Tool]:
        found: list[Tool] = []
        cursors: list[str | None] = [None]
        while len(cursors) <= PAGES:
            page = await self._ask(cursors[-1])
            found += page.tools
            if not page.next_cursor or page.next_cursor in cursors:
                return {tool.name: tool for tool in found if _can_be_called(tool, self._server)}
            cursors.append(page.next_cursor)
        raise McpProtocolError(
            f"the list of tools of the MCP server {self._server.label!r} does not end; it has {PAGES} pages"
        )


def _can_be_called(tool: Tool, server: McpDefinition) -> bool:
    """Return True if a tool is offered; one that only runs as an MCP task cannot be."""
    runs_as_task = tool.execution is not None and tool.execution.task_support == "required"
    return server.offers(tool.name) and not runs_as_task


def _look_at(task: asyncio.Task[Mapping[str, Tool]]) -> None:
    """Retrieve the exception, which may have no other reader."""
    if not task.cancelled():
        task.exception()


# A session with an MCP server, shared by all calls with the same headers.

OPENING = 50.0
"""Timeout in seconds for starting or reaching a server and its initialization; a task waits 60 for its
tools."""

LISTENING_AGAIN = 5.0
"""Seconds until changes are subscribed to again, after the subscription ended."""

_log = structlog.get_logger()


class McpSession:
    """A connection that is opened, held and closed by its own asyncio task, as the SDK requires.

    It begins to open at once. `users` counts its running calls; once it `has_ended`, it accepts no new
    ones. `tools` are those that the server offers in it.
    """

    def __init__(self, server: McpDefinition, headers: Mapping[str, str]) -> None:
        self.users = 0
        self.has_ended = False
        self.concealment = Concealment(server.url, headers, server.env)
        self._server = server
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leaves = asyncio.Event()
        self.tools = ToolList(server, self._page)
        self._output_schemas = dict[str, object]()
        connection = connection_to(
            server,
            headers,
            output_schemas=self._output_schemas,
            on_change=self.tools.forget,
            on_end=self.leave,
        )
        # Without the context of the first caller: neither its trace nor its log fields.
        self.owner = asyncio.create_task(self._hold(connection), context=Context())

    def retire(self) -> None:
        """End it as soon as it is unused."""
        self.has_ended = True
        if not self.users:
            self._leaves.set()

    def leave(self) -> None:
        """End it at once; its running calls are lost."""
        self.has_ended = True
        self._leaves.set()

    async def call(
        self, name: str, arguments: dict[str, JsonValue], progress: ProgressFnT, seconds: float
    ) -> CallToolResult:
        """Call a tool; a call that is cancelled, or takes too long, is cancelled at the server.

        Raises:
            McpError: the call has no result.
        """
        await self.tools.get()  # the SDK lists the tools after a call, if they were not listed before
        async with self._asking() as client:
            with mcp_span(self._server, client.protocol_version, "tools/call", name) as span:
                try:
                    result = await client.call_tool(
                        name, arguments, read_timeout_seconds=seconds, progress_callback=progress
                    )
                except ValidationError as error:
                    raise self._unusable(name, f"its result is lost: {misshapen(error)}") from None
                if result.is_error:
                    fail_span(span, TOOL_ERROR)
        if not result.is_error:
            await self._check(name, result)
        return result

    async def _check(self, name: str, result: CallToolResult) -> None:
        """Check a structured result against the server's schema.

        Raises:
            McpProtocolError: it does not match. Without a usable schema it passes: the tool has run.
        """
        schema = self._output_schemas.get(name)
        if schema is None:
            return
        try:
            violations = await find_schema_violations_soon(_schema(schema), [result.structured_content])
        except SchemaUnfitError as error:
            _log.warning(
                "result of an MCP tool not checked by its outputSchema",
                server=self._server.label,
                tool=name,
                problem=str(error),
            )
            return
        if violations:
            what = "its structured result does not fit the schema that the server gives for it"
            broken = f"it breaks the rule {violations[0].rule} at {violations[0].json_path}"
            raise self._unusable(name, f"{what}: {broken}")

    def _unusable(self, name: str, why: str) -> McpProtocolError:
        """Return the error for an unusable result, for a reader who may call again."""
        return McpProtocolError(f"{name} of the MCP server {self._server.label!r} was run, but {why}")

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
                self._opened.set_result(client)
                await self._stay(client)
        except Exception as error:  # noqa: BLE001 -- users of the connection get any error that ended it
            problem = mcp_error(error, self._server.label, self.concealment.in_error)
            if not self._opened.done():
                problem = _not_opened(problem, self._server)
            # Other errors may quote the server.
            why = {"problem": str(problem)} if isinstance(problem, McpUnavailableError) else {}
            _log.warning(
                "MCP session ended", server=self._server.label, error_type=type(problem).__name__, **why
            )
        finally:
            self.has_ended = True
            if not self._opened.done():
                self._opened.set_exception(problem or _closed(self._server))
                self._opened.exception()  # it may have no reader any more

    async def _stay(self, client: Client) -> None:
        tools = client.server_capabilities.tools
        announces = bool(tools and tools.list_changed)
        if not announces or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # Over HTTP the changes come on a stream that may break undetected.
            self.tools.announces_changes = announces and bool(self._server.command)
            await self._leaves.wait()
            return
        listening = asyncio.create_task(self._listen(client))
        try:
            await self._leaves.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools; since MCP 2026-07-28 a client has to request that."""
        while True:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    self.tools.announces_changes = True
                    self.tools.forget()  # earlier changes were not announced
                    async for _ in changes:
                        self.tools.forget()
            self.tools.announces_changes = False
            await asyncio.sleep(LISTENING_AGAIN)

    async def _page(self, cursor: str | None) -> ListToolsResult:
        async with self._asking() as client:
            return await client.list_tools(cursor=cursor)

    @asynccontextmanager
    async def _asking(self) -> AsyncGenerator[Client]:
        """Yield the open connection; translate errors of the SDK, without its stack."""
        client = await asyncio.shield(self._opened)
        try:
            yield client
        except Exception as error:  # noqa: BLE001 -- the SDK has no common base of its errors
            raise mcp_error(error, self._server.label, self.concealment.in_error) from None


def _schema(given: object) -> dict[str, JsonValue]:
    if not isinstance(given, dict):
        raise SchemaUnfitError("the schema is no object")
    return cast("dict[str, JsonValue]", given)


def _closed(server: McpDefinition) -> McpError:
    return McpUnavailableError(f"the MCP server {server.label!r} is closed; the worker stops")


def _not_opened(problem: McpError, server: McpDefinition) -> McpError:
    if isinstance(problem, McpLostError):
        advice = "run its command by hand to see why" if server.command else "see what its log says"
        return McpUnavailableError(f"the MCP server {server.label!r} ended while it was opened; {advice}")
    if isinstance(problem, McpTimeoutError):
        return McpUnavailableError(
            f"the MCP server {server.label!r} did not answer within {OPENING:g} s; see that it runs and "
            "speaks MCP"
        )
    return problem
