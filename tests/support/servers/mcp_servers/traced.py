"""An MCP server over stdio that sends its spans to the OTLP endpoint of its environment."""

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider(resource=Resource({"service.name": "mcp-server"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

server = MCPServer("notes")


@server.tool()
def note(text: str) -> str:
    """Take a note."""
    return f"noted: {text}"


if __name__ == "__main__":
    server.run("stdio")
