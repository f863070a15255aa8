"""Logs, traces and metrics of a process: JSON lines on stderr, the rest to the OTLP endpoint of OTEL_*."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

import structlog
from opentelemetry.sdk.resources import Resource
from temporalio.client import Plugin
from temporalio.runtime import Runtime, TelemetryConfig

from everloop.runtime.telemetry.logs import configure_logs, temporal_core_logs
from everloop.runtime.telemetry.metrics import Metrics, TelemetrySettings, start_metrics

if TYPE_CHECKING:
    from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider

SHUTDOWN_WAIT = 5.0
"""Seconds that a process that ends waits for its collector."""

SENDING = "last-spans"
"""Name of the thread that sends them."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Telemetry:
    """What a process switched on. `plugins` carry the trace context through Temporal."""

    tracers: "ReplaySafeTracerProvider | None"
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
    if not settings.traces:
        return Telemetry(None, metrics, ())
    from everloop.runtime.telemetry.traces import start_traces  # noqa: PLC0415 -- see its head

    tracers, plugin = start_traces(resource)
    return Telemetry(tracers, metrics, (plugin,))


def _log_temporal_core() -> None:
    """Bring the lines of Temporal's native part into the log; with metrics, these have seen to it."""
    Runtime.set_default(
        Runtime(telemetry=TelemetryConfig(logging=temporal_core_logs())), error_if_already_set=False
    )


def _resource_of_the_environment() -> Resource:
    """Return what the OTEL_* variables say, without the SDK's own default for a missing service name."""
    resource = Resource.create()
    attributes = dict(resource.attributes)
    if str(attributes.get("service.name", "")).startswith("unknown_service"):
        del attributes["service.name"]
    return Resource(attributes)
