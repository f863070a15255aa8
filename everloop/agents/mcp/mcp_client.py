"""Lists and calls the tools of one MCP server, for all tasks of a worker process."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog
from mcp_types import CallToolResult, ReadResourceResult
from mcp_types import Tool as ListedTool
from pydantic import JsonValue

from everloop.agents.errors import ToolDefinitionError
from everloop.agents.mcp.mcp_definition import McpDefinition, matches
from everloop.agents.mcp.mcp_errors import (
    McpLostError,
    McpSessionGoneError,
    McpTimeoutError,
    McpToolError,
    McpUnavailableError,
)
from everloop.agents.mcp.mcp_results import LatestProgress, ResultWriter
from everloop.agents.mcp.sessions import McpSession
from everloop.agents.tool import Tool
from everloop.agents.tool_context import ToolContext
from everloop.agents.tool_signature import LONGEST_NAME, as_tool_name
from everloop.runtime.outbound.policy import HeadersError, headers_for
from everloop.runtime.schema_validation import in_schema_thread
from everloop.workflows.contract.tasks import Identity

# Conversion of the tools of an MCP server to tools for models.


def names_of(tools: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the tools of a server by their names for models.

    Models accept fewer characters than MCP. Of tools with the same resulting name, each gets a hash in
    its name, independent of the order of the list.
    """
    plain = {tool: as_tool_name(prefix + tool) for tool in tools}
    shared = {name for name, count in Counter(plain.values()).items() if count > 1}
    return {
        _distinct(name, tool) if name in shared and name != prefix + tool else name: tool
        for tool, name in plain.items()
    }


def description_of(tool: ListedTool, server: str) -> str:
    """Return the description of a tool for the model."""
    title = tool.title or (tool.annotations and tool.annotations.title)
    return tool.description or title or f"{tool.name}, a tool of {server}"


def is_idempotent(tool: ListedTool, definition: McpDefinition) -> bool:
    """Return True if a call may be repeated: by the definition, else by the server's annotations."""
    hints = tool.annotations
    hinted = hints and (hints.read_only_hint or hints.idempotent_hint)
    return _chosen(tool.name, hinted, setting=definition.idempotent)


def is_quick(tool: ListedTool, definition: McpDefinition) -> bool:
    """Return True if a call runs as a quick tool: by the definition, if it may be repeated."""
    return is_idempotent(tool, definition) and _chosen(tool.name, hint=False, setting=definition.quick)


def needs_approval(tool: ListedTool, definition: McpDefinition) -> bool:
    """Return True if an approval is needed: by the definition, else for the annotation "destructive".

    In MCP a tool without annotations counts as destructive; most servers have none, and their harmless
    tools would all wait for people. So only an explicit annotation counts.
    """
    hints = tool.annotations
    hinted = hints and hints.destructive_hint and not hints.read_only_hint
    return _chosen(tool.name, hinted, setting=definition.needs_approval)


def _chosen(name: str, hint: object, *, setting: bool | Sequence[str] | None) -> bool:
    if setting is None:
        return bool(hint)
    return setting if isinstance(setting, bool) else matches(name, setting)


def _distinct(name: str, tool: str) -> str:
    mark = f"_{hashlib.sha256(tool.encode()).hexdigest()[:6]}"
    return name[: LONGEST_NAME - len(mark)] + mark


# The sessions of a worker process with one server.

MOST_SESSIONS = 32
"""Maximum sessions, one for each set of headers; more only while all of them are in use."""

CLOSING = 10.0
"""Timeout for ending sessions, in seconds; a server that a command started needs up to 6 of them."""


class SessionPool:
    """The session with a server: opened on first use, shared, and replaced when it has ended.

    Callers with headers of their own have sessions of their own; the `most` last used are cached.
    """

    def __init__(self, server: McpDefinition, most: int = MOST_SESSIONS) -> None:
        self._server = server
        self._most = most
        self._sessions = dict[str, McpSession]()  # the last used one at the end
        self._alive = set[McpSession]()
        self._is_closed = False

    @asynccontextmanager
    async def session(self, headers: Mapping[str, str]) -> AsyncGenerator[McpSession]:
        """Yield the session for these headers, which may still be opening.

        Raises:
            McpUnavailableError: the pool is closed.
        """
        if self._is_closed:
            raise McpUnavailableError(f"the MCP server {self._server.label!r} is closed; the worker stops")
        written = json.dumps(sorted((name.lower(), value) for name, value in headers.items()))
        key = hashlib.sha256(written.encode()).hexdigest()  # does not reveal them
        session = self._sessions.pop(key, None)
        if session is None or session.has_ended:
            session = self._opened(headers)
        self._sessions[key] = session
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if session.has_ended:
                session.retire()
            self._evict()

    async def close(self) -> None:
        """End all sessions permanently, with all their running calls."""
        self._is_closed = True
        self._sessions.clear()
        for session in self._alive:
            session.leave()
        if self._alive:
            _, late = await asyncio.wait([session.owner for session in self._alive], timeout=CLOSING)
            for owner in late:
                _log.warning("MCP session does not end", server=self._server.label)
                owner.cancel()

    def _opened(self, headers: Mapping[str, str]) -> McpSession:
        session = McpSession(self._server, headers)
        self._alive.add(session)
        session.owner.add_done_callback(lambda _: self._alive.discard(session))
        return session

    def _evict(self) -> None:
        """Drop the unused sessions above the limit, the longest unused ones first."""
        unused = [key for key, session in self._sessions.items() if not session.users]
        for key in unused[: max(0, len(self._sessions) - self._most)]:
            self._sessions.pop(key).retire()


Result = TypeVar("Result")

_log = structlog.get_logger()

_LINKS_SHARE = 0.8
"""Share of the call's remaining time for reading linked resources."""


class McpClient:
    """Lists and calls tools. Sessions are opened on first use and replaced when the server has ended them."""

    def __init__(self, definition: McpDefinition) -> None:
        self._server = definition
        self._pool = SessionPool(definition)

    async def list_tools(self, caller: Identity) -> list[Tool]:
        """Request the tools of the server.

        Raises:
            McpError: the request failed.
        """
        found = await self._ask(caller, lambda session: session.tools.ask(), repeatable=True)
        names = names_of(found, self._server.prefix)
        offered = [await self._tool(name, found[listed]) for name, listed in names.items()]
        return [tool for tool in offered if tool]

    async def get_tool(self, name: str, caller: Identity) -> Tool | None:
        """Return a tool from the cached list, which is requested again only after an announced change.

        Raises:
            McpError: the request was needed and failed.
        """
        found = await self._ask(caller, lambda session: session.tools.get(), repeatable=True)
        listed = names_of(found, self._server.prefix).get(name)
        return await self._tool(name, found[listed]) if listed else None

    async def close(self) -> None:
        """End all sessions."""
        await self._pool.close()

    async def _tool(self, name: str, listed: ListedTool) -> Tool | None:
        """Return the offered tool for a tool of the server; None if its schema is unusable."""
        repeatable = is_idempotent(listed, self._server)

        async def call(arguments: dict[str, JsonValue], context: ToolContext) -> str:
            return await self._call(listed.name, arguments, context, repeatable=repeatable)

        try:
            return await in_schema_thread(
                lambda: Tool(
                    function=call,
                    name=name,
                    description=description_of(listed, self._server.label),
                    timeout=self._server.timeout,
                    idempotent=repeatable,
                    needs_approval=needs_approval(listed, self._server),
                    quick=is_quick(listed, self._server),
                    schema=listed.input_schema,
                )
            )
        except ToolDefinitionError as error:
            _log.warning("tool of an MCP server left out", server=self._server.label, problem=str(error))
            return None

    async def _call(
        self, name: str, arguments: dict[str, JsonValue], context: ToolContext, *, repeatable: bool
    ) -> str:
        deadline = asyncio.get_running_loop().time() + self._server.seconds

        async def in_session(session: McpSession) -> str:
            result = await self._result(session, name, arguments, context)
            writer = ResultWriter(
                name, context.idempotency_key, context.artifacts, _reader(session, deadline)
            )
            try:
                return session.concealment.in_result(await writer.text_of(result))
            except McpToolError as error:
                raise McpToolError(session.concealment.in_result(str(error))) from None

        return await self._ask(context.auth, in_session, repeatable=repeatable)

    async def _result(
        self, session: McpSession, name: str, arguments: dict[str, JsonValue], context: ToolContext
    ) -> CallToolResult:
        progress = LatestProgress(lambda text: context.progress(session.concealment.in_result(text)))
        try:
            result = await session.call(name, arguments, progress.update, self._server.seconds)
            await progress.flush()
            return result
        finally:
            progress.stop()

    async def _ask(
        self, caller: Identity, question: Callable[[McpSession], Awaitable[Result]], *, repeatable: bool
    ) -> Result:
        """Call in a session; retry in a new one if the old one is lost and nothing can happen twice."""
        try:
            headers = await headers_for(self._server.headers, caller)
        except HeadersError as error:
            raise McpUnavailableError(f"headers for the MCP server {self._server.label!r}: {error}") from None
        try:
            async with self._pool.session(headers) as session:
                try:
                    return await question(session)
                except McpSessionGoneError:
                    session.retire()
                    raise
        except McpLostError:
            if not repeatable:
                raise
        except McpSessionGoneError:
            pass  # the request was not carried out
        async with self._pool.session(headers) as session:
            return await question(session)


def _reader(session: McpSession, deadline: float) -> Callable[[str], Awaitable[ReadResourceResult]]:
    """Return a reader of linked resources, which shares a part of the call's remaining time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + (deadline - loop.time()) * _LINKS_SHARE

    async def read(uri: str) -> ReadResourceResult:
        try:
            async with asyncio.timeout_at(until):
                return await session.read(uri)
        except TimeoutError:
            raise McpTimeoutError("no time is left to read it") from None

    return read
