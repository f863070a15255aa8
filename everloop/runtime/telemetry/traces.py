"""Spans of a process, and what they export. Loaded only where traces are on (3 MiB)."""

from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracer, Status, Tracer
from opentelemetry.util.types import Attributes, AttributeValue
from temporalio.contrib.opentelemetry import (
    OpenTelemetryPlugin,
    ReplaySafeTracerProvider,
    create_tracer_provider,
)

QUIET_SCOPES = frozenset({"mcp-python-sdk"})
"""Libraries whose spans are dropped. Calls of MCP servers have spans of our own, named by the conventions
(`everloop.agents.mcp.sessions`); the SDK's other spans, such as handshakes, belong to no task."""

_TEXTS = frozenset({"exception.message", "exception.stacktrace"})


def export_traces(resource: Resource) -> ReplaySafeTracerProvider:
    """Return a provider that exports spans to the OTLP endpoint of OTEL_*; replays make none."""
    provider = _TaskTracers(create_tracer_provider(resource=resource, shutdown_on_exit=False))
    provider.add_span_processor(BatchSpanProcessor(WithoutErrorTexts(OTLPSpanExporter())))
    return provider


class _TaskTracers(ReplaySafeTracerProvider):
    """A provider without the spans of quiet libraries."""

    def __init__(self, provider: ReplaySafeTracerProvider) -> None:
        super().__init__(provider._tracer_provider, provider.id_generator())  # noqa: SLF001 -- there is no other way to the provider that it wraps

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes | None = None,
    ) -> Tracer:
        if instrumenting_module_name in QUIET_SCOPES:
            return NoOpTracer()
        return super().get_tracer(
            instrumenting_module_name, instrumenting_library_version, schema_url, attributes
        )


class WithoutErrorTexts(SpanExporter):
    """Exports spans without the texts and stacks of errors, which may quote content or a secret.

    Temporal and libraries record every exception on their spans; its type stays.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_without_texts(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _without_texts(span: ReadableSpan) -> ReadableSpan:
    has_text = any(not _TEXTS.isdisjoint(event.attributes or {}) for event in span.events)
    if not (span.status.description or has_text):
        return span
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=[
            Event(event.name, _safe_attributes(event.attributes), event.timestamp) for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _safe_attributes(attributes: Mapping[str, AttributeValue] | None) -> dict[str, AttributeValue]:
    return {key: value for key, value in (attributes or {}).items() if key not in _TEXTS}


def start_traces(resource: Resource) -> tuple[ReplaySafeTracerProvider, OpenTelemetryPlugin]:
    """Make and export spans from now on; the plugin carries the trace context through Temporal."""
    provider = export_traces(resource)
    trace.set_tracer_provider(provider)
    return provider, OpenTelemetryPlugin(add_temporal_spans=True)
