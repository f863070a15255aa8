"""Where the metrics of a process go: to Prometheus, which reads them here, an OTLP endpoint, or both."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import structlog
from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.re import parse_env_headers
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from structlog.typing import FilteringBoundLogger

from everloop.stores.metrics_listener import Address, MetricsAddressError, MetricsListener
from everloop.stores.temporal_metrics import TemporalMetrics, export_temporal_metrics

SHUTDOWN_TIMEOUT = 5_000
"""Milliseconds that the last metrics may take to get out."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


def _parse(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return Address.parse(given)
    except ValueError as error:
        raise ValueError(f"EVERLOOP_METRICS_ADDRESS: {error}, or leave it empty") from None


class MetricsSettings(BaseSettings):
    """Where metrics go. An empty variable counts as not set.

    `EVERLOOP_METRICS_ADDRESS`: `host:port` where Prometheus reads them at /metrics, with /healthz and /readyz
    beside it (default: nowhere). They are sent if `OTEL_EXPORTER_OTLP_ENDPOINT` or
    `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is set, unless `OTEL_METRICS_EXPORTER` is none or
    `OTEL_SDK_DISABLED` is true, every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds (60,000). The OpenTelemetry
    SDK itself reads the other OTEL_* variables; the Temporal SDK gets only those of this class.
    """

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, hide_input_in_errors=True)

    address: Annotated[Address | None, NoDecode, BeforeValidator(_parse)] = Field(
        default=None, validation_alias="EVERLOOP_METRICS_ADDRESS"
    )
    endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    metrics_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    headers: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_HEADERS", repr=False)
    metrics_headers: str = Field(
        default="", validation_alias="OTEL_EXPORTER_OTLP_METRICS_HEADERS", repr=False
    )
    exporter: str = Field(default="otlp", validation_alias="OTEL_METRICS_EXPORTER")
    interval: float = Field(default=60_000, gt=0, validation_alias="OTEL_METRIC_EXPORT_INTERVAL")
    sdk_disabled: bool = Field(default=False, validation_alias="OTEL_SDK_DISABLED")

    @property
    def otlp_url(self) -> str:
        """Where metrics are sent; empty if they are not."""
        if self.exporter == "none" or self.sdk_disabled:
            return ""
        general = f"{self.endpoint.rstrip('/')}/v1/metrics" if self.endpoint else ""
        return self.metrics_endpoint or general

    @property
    def otlp_headers(self) -> Mapping[str, str]:
        """What is sent along, for instance to authenticate."""
        return parse_env_headers(self.metrics_headers or self.headers, liberal=True)


@dataclass(frozen=True)
class Metrics:
    """What is switched on of metrics."""

    provider: MeterProvider
    listener: MetricsListener | None

    def shutdown(self) -> None:
        """Send what is left and stop."""
        if self.listener:
            self.listener.close()
        try:
            self.provider.shutdown(timeout_millis=SHUTDOWN_TIMEOUT)
        except Exception as error:  # noqa: BLE001 -- the SDK raises just that; a process still has to end well
            _log.warning("metrics not sent", error=str(error))


def start_metrics(settings: MetricsSettings, resource: Resource) -> Metrics | None:
    """Serve and send metrics as the settings say; None if nobody wants them.

    It has to be called before any Temporal client is made.
    The Temporal SDK writes to one place only: to Prometheus, if that is wanted.

    Raises:
        MetricsAddressError: the listener's address is taken, or the endpoint is no URL.
    """
    url = settings.otlp_url
    if not settings.address and not url:
        return None
    readers: list[MetricReader] = [PeriodicExportingMetricReader(OTLPMetricExporter())] if url else []
    listener = None
    if settings.address:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
        listener = _listen(settings.address, registry)
    else:
        _send_those_of_temporal(url, settings)
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return Metrics(provider, listener)


def _listen(address: Address, registry: CollectorRegistry) -> MetricsListener:
    listener = MetricsListener(address)
    temporal = TemporalMetrics()
    listener.read = lambda: generate_latest(registry) + temporal.read()
    _log.info("metrics are served", address=str(address))
    return listener


def _send_those_of_temporal(url: str, settings: MetricsSettings) -> None:
    try:
        export_temporal_metrics(url, settings.otlp_headers, timedelta(milliseconds=settings.interval))
    except ValueError as error:
        raise MetricsAddressError(
            f"cannot send metrics: {error}; set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT or "
            "OTEL_EXPORTER_OTLP_ENDPOINT to an address such as http://127.0.0.1:4318"
        ) from error
