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
