"""A request continues the trace of its caller."""

from collections.abc import Generator

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client

from everloop.stores.log.log_store import TaskViews
from tests.gateway.grpc_harness import running_grpc_gateway
from tests.gateway.harness import RunningGateway, unique

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"


@pytest.fixture
def spans() -> Generator[InMemorySpanExporter]:
    """Spans of this process; the provider can be set once only, so another test's is used as well."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def test_a_call_over_grpc_is_one_too(
    client: Client, views: TaskViews, spans: InMemorySpanExporter
) -> None:
    """The span has the status of gRPC."""
    async with running_grpc_gateway(client, views, queue="none") as gateway:
        with pytest.raises(grpc.aio.AioRpcError):
            await anext(aiter(gateway.subscribe("x", traceparent=f"00-{TRACE_ID}-{SPAN_ID}-01")))
    (span,) = named(spans, "a2a SubscribeToTask")
    assert span.kind is trace.SpanKind.SERVER
    assert span.context
    assert trace.format_trace_id(span.context.trace_id) == TRACE_ID
    assert span.attributes
    assert span.attributes["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]


async def test_names_that_a_client_makes_up_name_no_spans(
    gateway: RunningGateway, spans: InMemorySpanExporter
) -> None:
    """Only existing methods name a span."""
    method = unique("Made")
    await gateway.call(method, {})
    assert len(named(spans, "a2a")) == 1
    assert not any(method in span.name for span in spans.get_finished_spans())


async def test_spans_hold_no_content(gateway: RunningGateway, spans: InMemorySpanExporter) -> None:
    """The client's content is in no attribute and no event of a span."""
    secret = unique("secret")
    for parts in ([{"text": secret}], [{"text": [secret]}], [{"raw": secret}]):
        message = {"messageId": unique("m"), "role": "ROLE_USER", "parts": parts}
        await gateway.call("SendMessage", {"message": message})
    assert not any(secret in span.to_json() for span in spans.get_finished_spans())
