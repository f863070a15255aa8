"""Logs, traces and metrics of a process: JSON lines on stderr, the rest to the OTLP endpoint of OTEL_*."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

import structlog
from temporalio.client import Plugin
from temporalio.runtime import Runtime, TelemetryConfig

from everloop.runtime.telemetry.logs import configure_logs, temporal_core_logs
from everloop.runtime.telemetry.telemetry_settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider

    from everloop.runtime.telemetry.metrics import Metrics

SHUTDOWN_WAIT = 5.0
"""Seconds that a stopping process waits for its collector."""

SENDING = "last-spans"
"""Name of the thread that sends the last spans."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Telemetry:
    """Telemetry of a process. `plugins` carry the trace context through Temporal."""

    tracers: "ReplaySafeTracerProvider | None"
    metrics: "Metrics | None"
    plugins: Sequence[Plugin]

    def ready(self) -> None:
        """Report ready on /readyz of the metrics address."""
        self._set_ready(is_ready=True)

    def stopping(self) -> None:
        """Report not ready: the process accepts no more work."""
        self._set_ready(is_ready=False)

    def shutdown(self, wait: float = SHUTDOWN_WAIT) -> None:
        """Send the remaining telemetry and stop; spans are lost if the collector does not answer.

        `wait`: seconds for the spans, default 5. The SDK would retry for 30, longer than most supervisors
        wait.
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
    """Configure logs, and traces and metrics if they are on. Call it once, first in the process.

    `service` is the resource's `service.name` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES names
    it.

    Raises:
        MetricsAddressError: the address for metrics is taken or malformed.
    """
    settings = TelemetrySettings()
    configure_logs(settings.log_level)
    if not settings.metrics:
        _log_temporal_core()
        if not settings.traces:
            return Telemetry(None, None, ())
    resource, metrics = _resource(service), None
    if settings.metrics:  # first, because it can fail
        from everloop.runtime.telemetry.metrics import start_metrics  # noqa: PLC0415 -- see its head

        metrics = start_metrics(settings, resource)
    if not settings.traces:
        return Telemetry(None, metrics, ())
    from everloop.runtime.telemetry.traces import start_traces  # noqa: PLC0415 -- see its head

    tracers, plugin = start_traces(resource)
    return Telemetry(tracers, metrics, (plugin,))


def _log_temporal_core() -> None:
    """Route the log of Temporal's native part into ours; `start_metrics` does it where metrics are on."""
    Runtime.set_default(
        Runtime(telemetry=TelemetryConfig(logging=temporal_core_logs())), error_if_already_set=False
    )


def _resource(service: str) -> "Resource":
    """Return the resource of the OTEL_* variables, without the SDK's placeholder for a missing name."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 -- 1 MiB, for who wants traces or metrics

    attributes = dict(Resource.create().attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        del attributes["service.name"]
    return Resource({"service.name": service}).merge(Resource(attributes))
