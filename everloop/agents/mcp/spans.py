"""The span around a request to an MCP server (OpenTelemetry semantic conventions for MCP)."""

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from mcp import MCPError
from mcp_types import CallToolResult
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from everloop.agents.mcp.definition import McpDefinition

TOOL_ERROR = "tool_error"
"""What `error.type` says of a tool that told of an error in its result; the conventions fix the word."""

_PORTS = {"http": 80, "https": 443}

_tracer = trace.get_tracer("everloop.mcp")


@contextmanager
def mcp_span(server: McpDefinition, protocol: str, method: str, tool: str = "") -> Generator[Span]:
    """Trace one request, whose trace context the SDK sends along in `_meta`, and HTTP in a header.

    No arguments, no results, and an exception by its kind. The span of the tool call around it is the one
    that says `execute_tool`, so that nobody counts the call twice.
    """
    attributes: dict[str, AttributeValue] = {
        "mcp.method.name": method,
        "mcp.protocol.version": protocol,
        **_address(server),
    }
    if tool:
        attributes["gen_ai.tool.name"] = tool
    with _tracer.start_as_current_span(
        f"{method} {tool}".rstrip(),
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            _fail(span, _error_type(error))
            raise


def record_result(span: Span, result: CallToolResult) -> None:
    """Say so on the span if the tool has failed."""
    if result.is_error:
        _fail(span, TOOL_ERROR)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _error_type(error: BaseException) -> str:
    return str(error.error.code) if isinstance(error, MCPError) else type(error).__qualname__


def _address(server: McpDefinition) -> dict[str, AttributeValue]:
    """Return where the server is. Nothing else of its URL: there may be a secret in it."""
    if server.command:
        return {"network.transport": "pipe"}
    parts = urlsplit(server.url)
    return {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": parts.hostname or "",
        "server.port": parts.port or _PORTS.get(parts.scheme, 0),
    }
