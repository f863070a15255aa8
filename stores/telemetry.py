"""Logs and traces of a process: JSON lines on stderr, spans to the OTLP endpoint of the OTEL_* variables."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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

LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]


class TelemetrySettings(BaseSettings):
    """Where logs and traces go. An empty variable counts as not set.

    `EVERLOOP_LOG_LEVEL`: debug, info (default), warning, error or critical. Traces are on when
    `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set and `OTEL_SDK_DISABLED` is
    not true; the SDK itself reads the other OTEL_* variables (OpenTelemetry specification, "Environment
    Variable Specification").
    """

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    log_level: LogLevel = Field(default="info", validation_alias="EVERLOOP_LOG_LEVEL")
    otlp_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    otlp_traces_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    sdk_disabled: bool = Field(default=False, validation_alias="OTEL_SDK_DISABLED")

    @property
    def traces(self) -> bool:
        """Whether spans are exported."""
        return bool(self.otlp_traces_endpoint or self.otlp_endpoint) and not self.sdk_disabled


@dataclass(frozen=True)
class Telemetry:
    """What a process switched on. `plugins` carry the trace context through Temporal."""

    provider: ReplaySafeTracerProvider | None
    plugins: Sequence[Plugin]

    def shutdown(self) -> None:
        """Send what is left and stop."""
        if self.provider:
            self.provider.shutdown()


def configure_telemetry(service: str) -> Telemetry:
    """Switch on logs, and traces if an endpoint is set, for this process; call it once, first.

    `service` is the resource's `service.name` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names it.
    """
    settings = TelemetrySettings()
    configure_logs(settings.log_level)
    if not settings.traces:
        return Telemetry(None, ())
    resource = Resource({"service.name": service}).merge(_resource_of_the_environment())
    provider = create_tracer_provider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return Telemetry(provider, (OpenTelemetryPlugin(add_temporal_spans=True),))


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
