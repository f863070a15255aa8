"""MCP servers that a command starts."""

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self, TextIO

import anyio
import structlog
from anyio.streams.text import TextReceiveStream
from mcp import StdioServerParameters
from mcp.client import stdio
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.shared.message import SessionMessage

from everloop.agents.mcp import launcher
from everloop.agents.mcp.definition import McpDefinition
from everloop.agents.mcp.errors import McpUnavailableError
from everloop.runtime.bounded_answers import AnswerBound, AnswerTooLargeError

Message = SessionMessage | Exception

_log = structlog.get_logger()


class WholeLines(TextReceiveStream):
    """The output of a server, line by line, each of bounded size.

    The SDK puts the pieces of a line together by copying what it has for each, however long it becomes.
    """

    async def receive(self) -> str:
        """Return whole lines, or the last one without its end.

        Raises:
            BrokenResourceError: a line is too large, or has too many values; the session ends.
        """
        bound, pieces = AnswerBound(), list[str]()
        while True:
            try:
                piece = await super().receive()
            except anyio.EndOfStream:
                if pieces:
                    return "".join(pieces)
                raise
            pieces.append(piece)
            try:
                bound.feed(piece.encode())
            except AnswerTooLargeError as problem:
                _log.warning("MCP server ended", reason=f"a line is too large: {problem}")
                await self.aclose()  # or the SDK would wait for the server to end
                raise anyio.BrokenResourceError from None
            if "\n" in piece:
                return "".join(pieces)


# It has no argument for it.
stdio.TextReceiveStream = WholeLines  # pyright: ignore[reportPrivateImportUsage] -- as above


class MessageStream(Protocol):
    """What the SDK's transports read messages from."""

    async def receive(self) -> Message: ...
    async def aclose(self) -> None: ...
    async def __anext__(self) -> Message: ...


class WatchedStream:
    """The messages of a server. Tells when there will be no more of them."""

    def __init__(self, stream: MessageStream, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> Message:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def running_server(
    definition: McpDefinition, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[WatchedStream, object]]:
    """Start the server, and end it with the block: its input is closed; SIGTERM and SIGKILL follow 2 s apart.

    What it writes to its standard error goes to that of this process. `on_end` hears of its end.

    Raises:
        McpUnavailableError: there is no such command.
    """
    async with stdio_client(_parameters(definition), _stderr()) as (read, write):
        yield WatchedStream(read, on_end), write


def _parameters(definition: McpDefinition) -> StdioServerParameters:
    words = [_executable(definition), *definition.command[1:]]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *words]
    return StdioServerParameters(command=words[0], args=words[1:], env=dict(definition.env))


def _executable(definition: McpDefinition) -> str:
    """Return the path of the command; a launcher could not say that there is none."""
    path = definition.env.get("PATH", get_default_environment().get("PATH"))
    if found := shutil.which(definition.command[0], path=path):
        return found
    raise McpUnavailableError(
        f"the command {definition.command[0]!r} of the MCP server {definition.label!r} was not found; "
        "install it where the worker runs, or give its full path"
    )


def _stderr() -> TextIO:
    """Return where servers may complain, not what this process may have put in its place."""
    return sys.__stderr__ or sys.stderr
