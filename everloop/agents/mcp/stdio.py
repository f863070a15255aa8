"""MCP servers that a command starts."""

import codecs
import os
import shutil
import sys

import structlog
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment
from typing_extensions import Buffer

from everloop.agents.mcp import launcher
from everloop.agents.mcp.mcp_definition import McpDefinition
from everloop.agents.mcp.mcp_errors import McpUnavailableError
from everloop.runtime.outbound.bounds import AnswerBound, AnswerTooLargeError

_log = structlog.get_logger()

LINE_TOO_LARGE = "notifications/everloop/line_too_large"
"""Message in place of a line of a server that exceeds the limits; ends its session."""

_LINES = "everloop_mcp_lines"
"""Name of the encoding of servers."""


class LinesDecoder(codecs.IncrementalDecoder):
    """Decodes UTF-8 by whole lines, each of limited size.

    The SDK joins the pieces of a line by copying all of them for each piece, however long it becomes; the
    encoding is its only setting for how it reads.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._bound = AnswerBound()
        self._pieces = list[bytes]()
        self._has_ended = False

    def decode(self, input: Buffer, final: bool = False) -> str:  # noqa: A002, FBT001, FBT002 -- as in the base class
        if self._has_ended:
            return ""
        piece = bytes(input)
        self._pieces.append(piece)
        try:
            self._bound.feed(piece)
        except AnswerTooLargeError as problem:
            _log.warning("MCP server ended", reason=f"a line is too large: {problem}")
            self._has_ended, self._pieces = True, []
            return f'\n{{"jsonrpc": "2.0", "method": "{LINE_TOO_LARGE}"}}\n'
        if b"\n" not in piece:
            return ""
        whole, self._pieces, self._bound = b"".join(self._pieces), [], AnswerBound()
        return self._utf8.decode(whole)


def _find_lines(name: str) -> codecs.CodecInfo | None:
    utf8 = codecs.lookup("utf-8")
    return (
        codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=LinesDecoder)
        if name == _LINES
        else None
    )


codecs.register(_find_lines)


def stdio_parameters(definition: McpDefinition) -> StdioServerParameters:
    """Return how the SDK starts a server, which on Linux ends with this process.

    Raises:
        McpUnavailableError: the command does not exist.
    """
    words = [_executable(definition), *definition.command[1:]]
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *words]
    return StdioServerParameters(
        command=words[0],
        args=words[1:],
        env=dict(definition.env),
        encoding=_LINES,
        encoding_error_handler="replace",  # a log line in another encoding would end all reading
    )


def _executable(definition: McpDefinition) -> str:
    """Return the path of the command; a launcher could not report a missing one."""
    path = definition.env.get("PATH", get_default_environment().get("PATH"))
    if found := shutil.which(definition.command[0], path=path):
        return found
    raise McpUnavailableError(
        f"the command {definition.command[0]!r} of the MCP server {definition.label!r} was not found; "
        "install it where the worker runs, or give its full path"
    )
