"""What a trace shows of a request to an MCP server, and what the server learns of the trace."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from everloop import Plugin, mcp
from everloop.agents.mcp.errors import McpToolError
from tests.support.rigs.mcp_rig import STDIO, Caller, http_server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with http_server(tmp_path_factory.mktemp("mcp")) as (_, url):
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["stdio", "http"])
async def server(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[Plugin]:
    given = url.replace("http://", "http://user:url-password@")
    plugin = mcp(given, name="own") if request.param == "http" else mcp(command=STDIO, name="own")
    yield plugin
    await plugin.close()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    """Return the one span of that name."""
    (span,) = (span for span in spans.get_finished_spans() if span.name == name)
    return span


async def test_a_call_is_a_client_span_of_the_tools_trace(
    server: Plugin, url: str, spans: InMemorySpanExporter
) -> None:
    """Names and attributes follow the conventions for MCP; nothing of the URL but host and port."""
    with trace.get_tracer("test").start_as_current_span("tool") as tool:
        await Caller(server).call("echo", text="hush")

    span = named(spans, "tools/call echo")
    attributes = dict(span.attributes or {})
    assert span.kind is SpanKind.CLIENT
    assert span.parent == tool.get_span_context()
    assert attributes.pop("mcp.protocol.version")
    is_http = attributes["network.transport"] == "tcp"
    parts = urlsplit(url)
    over_http = {
        "network.protocol.name": "http",
        "server.address": parts.hostname,
        "server.port": parts.port,
    }
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "network.transport": "tcp" if is_http else "pipe",
        **(over_http if is_http else {}),
    }
    assert span.status.is_unset
    assert not any(word in span.to_json() for word in ("hush", "url-password"))


async def test_a_tool_that_fails_fails_the_span(server: Plugin, spans: InMemorySpanExporter) -> None:
    """What it said is not in it."""
    with pytest.raises(McpToolError):
        await Caller(server).call("fail", reason="hush")
    span = named(spans, "tools/call fail")
    assert (span.attributes or {})["error.type"] == "tool_error"
    assert not span.status.is_ok
    assert "hush" not in span.to_json()


async def test_a_call_carries_its_trace(server: Plugin, spans: InMemorySpanExporter) -> None:
    """In the metadata of the request on both transports."""
    with trace.get_tracer("test").start_as_current_span("tool") as tool:
        told = await Caller(server).call("trace_context")
    assert told.startswith(f"00-{trace.format_trace_id(tool.get_span_context().trace_id)}-")


async def test_a_call_over_http_carries_its_trace_in_a_header(url: str, spans: InMemorySpanExporter) -> None:
    """A proxy, or a server that knows nothing of the metadata, reads it there; each call has its own."""
    server = mcp(url, name="own")
    try:
        for _ in range(2):
            with trace.get_tracer("test").start_as_current_span("tool") as tool:
                told = await Caller(server).call("header", name="traceparent")
            assert told.startswith(f"00-{trace.format_trace_id(tool.get_span_context().trace_id)}-")
    finally:
        await server.close()


async def test_linked_resources_are_read_in_the_trace(server: Plugin, spans: InMemorySpanExporter) -> None:
    """Their addresses are in no span."""
    with trace.get_tracer("test").start_as_current_span("tool") as tool:
        await Caller(server).call("files")
    reads = [span for span in spans.get_finished_spans() if span.name == "resources/read"]
    assert [span.parent for span in reads] == [tool.get_span_context()] * 2
    assert not any("test://" in span.to_json() for span in reads)
