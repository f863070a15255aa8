"""Logs, traces and metrics of a process: JSON lines on stderr, the rest to the OTLP endpoint of OTEL_*."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import structlog
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from structlog.typing import EventDict, WrappedLogger
from temporalio.client import Plugin
from temporalio.contrib.opentelemetry import (
    OpenTelemetryPlugin,
    ReplaySafeTracerProvider,
    create_tracer_provider,
)

_log = structlog.get_logger()

LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]


SHUTDOWN_TIMEOUT = 5_000
"""Milliseconds that the last metrics may take to get out."""


class TelemetrySettings(BaseSettings):
    """Where logs, traces and metrics go. An empty variable counts as not set.

    `EVERLOOP_LOG_LEVEL`: debug, info (default), warning, error or critical. Traces are on when
    `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set and `OTEL_SDK_DISABLED` is
    not true; metrics likewise, by `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, and unless `OTEL_METRICS_EXPORTER`
    is none. The SDK itself reads the other OTEL_* variables (OpenTelemetry specification, "Environment
    Variable Specification").
    """

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    log_level: LogLevel = Field(default="info", validation_alias="EVERLOOP_LOG_LEVEL")
    otlp_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    otlp_traces_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    otlp_metrics_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    metrics_exporter: str = Field(default="otlp", validation_alias="OTEL_METRICS_EXPORTER")
    sdk_disabled: bool = Field(default=False, validation_alias="OTEL_SDK_DISABLED")

    @property
    def traces(self) -> bool:
        """Whether spans are exported."""
        return bool(self.otlp_traces_endpoint or self.otlp_endpoint) and not self.sdk_disabled

    @property
    def metrics(self) -> bool:
        """Whether metrics are exported."""
        is_wanted = bool(self.otlp_metrics_endpoint or self.otlp_endpoint) and self.metrics_exporter != "none"
        return is_wanted and not self.sdk_disabled


@dataclass(frozen=True)
class Telemetry:
    """What a process switched on. `plugins` carry the trace context through Temporal."""

    tracers: ReplaySafeTracerProvider | None
    meters: MeterProvider | None
    plugins: Sequence[Plugin]

    def shutdown(self) -> None:
        """Send what is left and stop."""
        if self.meters:
            try:
                self.meters.shutdown(timeout_millis=SHUTDOWN_TIMEOUT)
            except Exception as error:  # noqa: BLE001 -- the SDK raises just that; a process still has to end well
                _log.warning("metrics not sent", error=str(error))
        if self.tracers:
            self.tracers.shutdown()


def configure_telemetry(service: str) -> Telemetry:
    """Switch on logs, and traces and metrics if an endpoint is set, for this process; call it once, first.

    `service` is the resource's `service.name` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names it.
    """
    settings = TelemetrySettings()
    configure_logs(settings.log_level)
    resource = Resource({"service.name": service}).merge(_resource_of_the_environment())
    tracers = _export_traces(resource) if settings.traces else None
    meters = _export_metrics(resource) if settings.metrics else None
    return Telemetry(tracers, meters, (OpenTelemetryPlugin(add_temporal_spans=True),) if tracers else ())


def _export_traces(resource: Resource) -> ReplaySafeTracerProvider:
    provider = create_tracer_provider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def _export_metrics(resource: Resource) -> MeterProvider:
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider


def _resource_of_the_environment() -> Resource:
    """Return what the OTEL_* variables say, without the SDK's own default for a missing service name."""
    resource = Resource.create()
    attributes = dict(resource.attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        del attributes["service.name"]
    return Resource(attributes)


def configure_logs(level: LogLevel) -> None:
    """Write every log record, ours and the libraries', as one JSON line on stderr."""
    shared = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_ids,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "a2a"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event
