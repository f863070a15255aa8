"""What the SDK raises, as errors that say which server it was and what to do."""

from collections.abc import Callable

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from everloop.agents.mcp.errors import (
    McpError,
    McpLostError,
    McpProtocolError,
    McpRefusedError,
    McpSessionGoneError,
    McpTimeoutError,
    McpUnavailableError,
)
from everloop.agents.mcp.transports import Fault, fault_in

_SDK_LOST = ("Connection closed", "SSE stream")

_LONGEST = 2000
"""Characters of what a server says of an error."""


def explained(error: BaseException, server: str, hide: Callable[[str], str]) -> McpError:
    """Return what an error of the SDK means for whoever asked the server."""
    cause = _first_of(error)
    if isinstance(cause, McpError):
        return cause
    if isinstance(cause, MCPError):
        return _explained_answer(cause, server, hide)
    if isinstance(cause, TimeoutError):
        return McpTimeoutError(f"the MCP server {server!r} did not answer in time; try again later")
    if isinstance(cause, OSError):
        return McpUnavailableError(
            f"the MCP server {server!r} could not be started: {cause.strerror or type(cause).__name__}; "
            "check its command"
        )
    return _not_mcp(cause, server, hide)


def _explained_answer(error: MCPError, server: str, hide: Callable[[str], str]) -> McpError:
    if found := fault_in(error.data):
        return _explained_fault(*found, server)
    # Servers use the codes that the SDK has for these two as well, and for anything.
    if error.code == CONNECTION_CLOSED and error.message.startswith(_SDK_LOST):
        return _lost(server)
    if error.code == REQUEST_TIMEOUT and error.message.endswith("timed out"):
        return McpTimeoutError(f"the MCP server {server!r} did not answer in time, and was told to stop")
    return McpProtocolError(f"the MCP server {server!r} says: {hide(error.message)[:_LONGEST]}")


def _explained_fault(fault: Fault, status: int, server: str) -> McpError:
    match fault:
        case Fault.UNREACHABLE:
            return McpUnavailableError(
                f"the MCP server {server!r} cannot be reached; see that it runs and that its url is right"
            )
        case Fault.REFUSED:
            return McpRefusedError(
                f"the MCP server {server!r} refuses this caller (HTTP {status}); check the headers of its "
                "definition: they are missing, have expired, or do not allow this"
            )
        case Fault.COMPRESSED:
            return McpProtocolError(
                f"the MCP server {server!r} answers compressed, though it was asked not to (Accept-Encoding: "
                "identity), so that nobody could tell how large that becomes; switch its compression off"
            )
        case Fault.GONE:
            return McpSessionGoneError(f"the MCP server {server!r} has forgotten the session (HTTP {status})")
        case Fault.LOST:
            return _lost(server)
        case Fault.FAILED:
            return McpProtocolError(
                f"the MCP server {server!r} answered HTTP {status}; see that its url is right and what its "
                "log says"
            )


def _lost(server: str) -> McpLostError:
    return McpLostError(
        f"the connection to the MCP server {server!r} was lost; what it was asked for may or may not have "
        "taken effect, so check before you repeat it"
    )


def _not_mcp(cause: BaseException, server: str, hide: Callable[[str], str]) -> McpProtocolError:
    # What pydantic says of an answer quotes that answer.
    what = "it does not have the form that MCP wants" if isinstance(cause, ValidationError) else str(cause)
    return McpProtocolError(f"the MCP server {server!r} gave an answer without use: {hide(what)[:_LONGEST]}")


def _first_of(error: BaseException) -> BaseException:
    """Return the first error of a group: the SDK's task groups wrap what ended them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType] -- a group of anything
    return error  # pyright: ignore[reportUnknownVariableType] -- the same
