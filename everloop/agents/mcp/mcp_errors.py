"""Errors of MCP servers. Models read them, and people: in logs and in the failures of tasks.

McpError
├── McpUnavailableError   the server cannot be reached or started; no request was sent
│   └── McpRefusedError   it rejects this caller
├── McpSessionGoneError   it has closed the session; the request was not carried out
├── McpLostError          the connection was lost during a call, with an unknown outcome
├── McpTimeoutError       it did not answer in time
├── McpProtocolError      its answer violates MCP
└── McpToolError          the tool reported a failure
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from everloop.runtime.user_code import inner_errors


class McpError(Exception):
    """An error of an MCP server; the message has its name and the next step."""


class McpUnavailableError(McpError):
    """The server cannot be reached or started; no request was sent."""


class McpRefusedError(McpUnavailableError):
    """The server rejects this caller."""


class McpSessionGoneError(McpError):
    """The server has closed the session; the request was not carried out."""


class McpLostError(McpError):
    """The connection was lost during a call, which may or may not have taken effect."""


class McpTimeoutError(McpError):
    """The server did not answer in time."""


class McpProtocolError(McpError):
    """The answer of the server violates MCP."""


class McpToolError(McpError):
    """The tool reported a failure; the message is its own."""


# Translation of SDK errors to errors with the name of the server and the next step.


class Fault(StrEnum):
    """Kind of a failure below MCP."""

    UNREACHABLE = "unreachable"
    """The request was not sent."""

    LOST = "lost"
    """It was sent, or a part of it; no answer came."""

    REFUSED = "refused"
    """401 or 403."""

    GONE = "gone"
    """The session is unknown or closed."""

    COMPRESSED = "compressed"
    """The answer is compressed, against the request."""

    BUSY = "busy"
    """429 or 503."""

    FAILED = "failed"
    """Another status of 400 or more, without an explanation in JSON."""

    FOREIGN = "foreign"
    """The answer to a request is neither JSON nor events, such as a web page."""


def fault_in(data: object) -> tuple[Fault, str] | None:
    """Return the fault and the answer in the data of a JSON-RPC error; None for an error of MCP."""
    match data:
        case {"fault": str() as kind, "answer": str() as answer} if kind in set(Fault):
            return Fault(kind), answer
        case _:
            return None


_SDK_LOST = ("Connection closed", "SSE stream")

_LONGEST = 2000
"""Maximum characters of a server's error text."""


def mcp_error(error: BaseException, server: str, hide: Callable[[str], str]) -> McpError:
    """Return our error for an error of the SDK."""
    cause = inner_errors(error)[0]  # the SDK's task groups wrap their cause
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
    """Return the place where an answer violates MCP, without pydantic's text, which quotes the answer."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"it does not have the form that MCP wants (at {place})"


def _explained_answer(error: MCPError, server: str, hide: Callable[[str], str]) -> McpError:
    fault, answer = fault_in(error.data) or (None, "")
    if fault in _FAULTS:
        kind, text = _FAULTS[fault]
        return kind(f"the MCP server {server!r} {text.format(answer)}")
    # Servers use the SDK's codes for these two, and for other errors as well.
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
"""Error and text for each fault but `LOST`, with the answer."""
