"""Errors of MCP servers. Models read them, and people: in logs and in the failures of tasks.

McpError
├── McpUnavailableError   the server cannot be reached or started; it was asked nothing
│   └── McpRefusedError   it does not let this caller in
├── McpSessionGoneError   it no longer knows the session; what was asked of it was not done
├── McpLostError          the connection went away under a call, whose outcome nobody knows
├── McpTimeoutError       it did not answer in time
├── McpProtocolError      it answered, but not as MCP wants
└── McpToolError          the tool itself says that it failed
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from everloop.runtime.user_code import inner_errors


class McpError(Exception):
    """Something is wrong with an MCP server; the message names it and says what to do."""


class McpUnavailableError(McpError):
    """The server cannot be reached or started; it was asked nothing."""


class McpRefusedError(McpUnavailableError):
    """The server does not let this caller in."""


class McpSessionGoneError(McpError):
    """The server no longer knows the session; what was asked of it was not done."""


class McpLostError(McpError):
    """The connection went away under a call, which may or may not have taken effect."""


class McpTimeoutError(McpError):
    """The server did not answer in time."""


class McpProtocolError(McpError):
    """The server answered, but not as MCP wants."""


class McpToolError(McpError):
    """The tool says that it failed; the message is its own."""


# What the SDK raises, as errors that say which server it was and what to do.


class Fault(StrEnum):
    """What went wrong below MCP."""

    UNREACHABLE = "unreachable"
    """The request was not sent."""

    LOST = "lost"
    """It was sent, or a part of it; no answer came."""

    REFUSED = "refused"
    """401 or 403."""

    GONE = "gone"
    """The session is not known (any more)."""

    COMPRESSED = "compressed"
    """The answer is, though it was asked for as it is."""

    BUSY = "busy"
    """429 or 503."""

    FAILED = "failed"
    """Another status of 400 or more, without an explanation in JSON."""

    FOREIGN = "foreign"
    """The answer to a request is neither JSON nor events, such as a web page."""


def fault_in(data: object) -> tuple[Fault, str] | None:
    """Return what went wrong, and the answer, of the data of a JSON-RPC error; None if MCP itself failed."""
    match data:
        case {"fault": str() as kind, "answer": str() as answer} if kind in set(Fault):
            return Fault(kind), answer
        case _:
            return None


_SDK_LOST = ("Connection closed", "SSE stream")

_LONGEST = 2000
"""Characters of what a server says of an error."""


def mcp_error(error: BaseException, server: str, hide: Callable[[str], str]) -> McpError:
    """Return what an error of the SDK means for whoever asked the server."""
    cause = inner_errors(error)[0]  # the SDK's task groups wrap what ended them
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
    what = misshapen(cause) if isinstance(cause, ValidationError) else str(cause)
    return McpProtocolError(f"the MCP server {server!r} gave an answer without use: {hide(what)[:_LONGEST]}")


def misshapen(error: ValidationError) -> str:
    """Say where an answer is not as MCP wants; what pydantic says itself quotes the answer."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"it does not have the form that MCP wants (at {place})"


def _explained_answer(error: MCPError, server: str, hide: Callable[[str], str]) -> McpError:
    fault, answer = fault_in(error.data) or (None, "")
    if fault in _FAULTS:
        kind, text = _FAULTS[fault]
        return kind(f"the MCP server {server!r} {text.format(answer)}")
    # Servers use the codes that the SDK has for these two as well, and for anything.
    sdk_lost = error.code == CONNECTION_CLOSED and error.message.startswith(_SDK_LOST)
    if fault is Fault.LOST or sdk_lost:
        return McpLostError(
            f"the connection to the MCP server {server!r} was lost; what it was asked for may or may not "
            "have taken effect, so check before you repeat it"
        )
    if error.code == REQUEST_TIMEOUT and error.message.endswith("timed out"):
        return McpTimeoutError(f"the MCP server {server!r} did not answer in time, and was told to stop")
    return McpProtocolError(f"the MCP server {server!r} says: {hide(error.message)[:_LONGEST]}")


_FAULTS: Mapping[Fault | None, tuple[type[McpError], str]] = {
    Fault.UNREACHABLE: (McpUnavailableError, "cannot be reached; see that it runs and that its url is right"),
    Fault.REFUSED: (
        McpRefusedError,
        (
            "refuses this caller ({}); check the headers of its definition: they are missing, have "
            "expired, or do not allow this"
        ),
    ),
    Fault.COMPRESSED: (
        McpProtocolError,
        (
            "answers compressed, though it was asked not to (Accept-Encoding: identity), so that nobody "
            "could tell how large that becomes; switch its compression off"
        ),
    ),
    Fault.BUSY: (McpUnavailableError, "has no time now ({}); try again later"),
    Fault.GONE: (McpSessionGoneError, "has forgotten the session ({})"),
    Fault.FAILED: (McpProtocolError, "answered {}; see that its url is right and what its log says"),
    Fault.FOREIGN: (
        McpProtocolError,
        "answered {}, where MCP has JSON or events; see that its url is that of MCP, and not of a page",
    ),
}
"""What each fault but `LOST` means, with the answer."""
