"""Logs, traces and metrics of a process: JSON lines on stderr, the rest to the OTLP endpoint of OTEL_*."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Thread

import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import NoOpTracer, Status, Tracer
from opentelemetry.util.types import Attributes, AttributeValue
from temporalio.client import Plugin
from temporalio.contrib.opentelemetry import (
    OpenTelemetryPlugin,
    ReplaySafeTracerProvider,
    create_tracer_provider,
)
from temporalio.runtime import Runtime, TelemetryConfig

from everloop.runtime.telemetry.logs import configure_logs, temporal_core_logs
from everloop.runtime.telemetry.metrics import Metrics, TelemetrySettings, start_metrics

# Which spans a process makes, and what of them leaves it.

QUIET_SCOPES = frozenset({"mcp-python-sdk"})
"""Libraries whose spans we do not want. Calls of MCP servers have spans of our own, named as the conventions
say (`everloop.agents.mcp.sessions`); what the SDK sends besides, such as a handshake, belongs to no task."""

_TEXTS = frozenset({"exception.message", "exception.stacktrace"})


def export_traces(resource: Resource) -> ReplaySafeTracerProvider:
    """Return what makes spans and sends them to the OTLP endpoint of OTEL_*; replays make none."""
    # 1 MiB, for who wants traces.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 -- as above

    provider = _TaskTracers(create_tracer_provider(resource=resource, shutdown_on_exit=False))
    provider.add_span_processor(BatchSpanProcessor(WithoutErrorTexts(OTLPSpanExporter())))
    return provider


class _TaskTracers(ReplaySafeTracerProvider):
    """Makes no spans for libraries that are quiet."""

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
    """Sends spans on without the texts and stacks of errors: they may quote content, or a secret.

    Temporal's spans, and those of libraries, record whatever is raised; its type is left.
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
    if not span.status.description and not any(_has_text(event) for event in span.events):
        return span
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=[Event(event.name, _kept(event.attributes), event.timestamp) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _has_text(event: Event) -> bool:
    return not _TEXTS.isdisjoint(event.attributes or {})


def _kept(attributes: Mapping[str, AttributeValue] | None) -> dict[str, AttributeValue]:
    return {key: value for key, value in (attributes or {}).items() if key not in _TEXTS}


SHUTDOWN_WAIT = 5.0
"""Seconds that a process that ends waits for its collector."""

SENDING = "last-spans"
"""Name of the thread that sends them."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Telemetry:
    """What a process switched on. `plugins` carry the trace context through Temporal."""

    tracers: ReplaySafeTracerProvider | None
    metrics: Metrics | None
    plugins: Sequence[Plugin]

    def ready(self) -> None:
        """Let /readyz of the metrics address say that the process works."""
        self._set_ready(is_ready=True)

    def stopping(self) -> None:
        """Let it say that the process takes nothing on any more."""
        self._set_ready(is_ready=False)

    def shutdown(self, wait: float = SHUTDOWN_WAIT) -> None:
        """Send what is left and stop; where the collector does not answer, the last spans are lost.

        `wait`: seconds for the spans, default 5. The SDK would try for 30, longer than whoever stops us
        may wait.
        """
        if self.metrics:
            self.metrics.shutdown()
        if self.tracers:
            sending = Thread(target=self.tracers.shutdown, name=SENDING, daemon=True)
            sending.start()
            sending.join(wait)
            if sending.is_alive():
                _log.warning("spans not sent", reason=f"the collector did not answer within {wait:g} s")

    def _set_ready(self, *, is_ready: bool) -> None:
        if self.metrics and self.metrics.listener:
            self.metrics.listener.is_ready = is_ready


def configure_telemetry(service: str) -> Telemetry:
    """Switch on logs, and traces and metrics if they are wanted, for this process; call it once, first.

    `service` is the resource's `service.name` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names it.

    Raises:
        MetricsAddressError: the address for metrics is taken, or is none.
    """
    settings = TelemetrySettings()
    configure_logs(settings.log_level)
    resource = Resource({"service.name": service}).merge(_resource_of_the_environment())
    # First, because it can fail.
    metrics = start_metrics(settings, resource) or _log_temporal_core()
    tracers = _export_traces(resource) if settings.traces else None
    return Telemetry(tracers, metrics, (OpenTelemetryPlugin(add_temporal_spans=True),) if tracers else ())


def _log_temporal_core() -> None:
    """Bring the lines of Temporal's native part into the log; with metrics, these have seen to it."""
    Runtime.set_default(
        Runtime(telemetry=TelemetryConfig(logging=temporal_core_logs())), error_if_already_set=False
    )


def _export_traces(resource: Resource) -> ReplaySafeTracerProvider:
    provider = export_traces(resource)
    trace.set_tracer_provider(provider)
    return provider


def _resource_of_the_environment() -> Resource:
    """Return what the OTEL_* variables say, without the SDK's own default for a missing service name."""
    resource = Resource.create()
    attributes = dict(resource.attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        del attributes["service.name"]
    return Resource(attributes)
