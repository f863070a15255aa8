"""The Temporal SDK's own metrics: polled on loopback for Prometheus, or pushed by OTLP."""

import http.client
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog
from structlog.typing import FilteringBoundLogger
from temporalio.runtime import OpenTelemetryConfig, PrometheusConfig, Runtime, TelemetryConfig

from everloop.stores.logs import temporal_core_logs

_LOOPBACK = "127.0.0.1"

READ_TIMEOUT = 5.0
"""Seconds that the SDK has to answer in."""

_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALLS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600)
_TASKS = (1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400, 604_800, 2_592_000)

BUCKETS: Mapping[str, Sequence[float]] = {
    "everloop_iteration_duration": _LONG,
    "temporal_activity_schedule_to_start_latency": _WAITS,
    "temporal_workflow_task_schedule_to_start_latency": _WAITS,
    "temporal_activity_execution_latency": _LONG,
    "temporal_activity_succeed_endtoend_latency": _LONG,
    "temporal_workflow_endtoend_latency": _TASKS,
    "temporal_workflow_task_execution_latency": _CALLS,
    "temporal_workflow_task_replay_latency": _CALLS,
    "temporal_request_latency": _CALLS,
    "temporal_long_request_latency": _LONG,
}
"""Bounds of buckets in seconds. The SDK's own end at 10 s for most, and a task may take days."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class TemporalMetrics:
    """Serves the SDK's metrics on a port of the loopback interface, and reads them there.

    The SDK cannot write them to memory as text. Its `MetricBuffer` would hand every single change to Python.
    """

    def __init__(self) -> None:
        self._port = _start()

    def read(self) -> bytes:
        """Return the text; empty, with a warning in the log, if it cannot be had."""
        connection = http.client.HTTPConnection(_LOOPBACK, self._port, timeout=READ_TIMEOUT)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            _log.warning("metrics of the Temporal SDK not read", error=str(error))
            return b""
        finally:
            connection.close()


def export_temporal_metrics(url: str, headers: Mapping[str, str], every: timedelta) -> None:
    """Let the SDK push its metrics to an OTLP endpoint over HTTP. Call it before any client is made.

    Raises:
        ValueError: the address is none.
    """
    _use(
        OpenTelemetryConfig(
            url=url,
            headers=headers,
            metric_periodicity=every,
            durations_as_seconds=True,
            http=True,
            histogram_bucket_overrides=BUCKETS,
        )
    )


def _start(tries: int = 20) -> int:
    """Start to serve, before any client is made, and return the port."""
    port = _free_port()
    try:
        _use(
            PrometheusConfig(
                bind_address=f"{_LOOPBACK}:{port}",
                counters_total_suffix=True,
                unit_suffix=True,
                durations_as_seconds=True,
                histogram_bucket_overrides=BUCKETS,
            )
        )
    except ValueError:  # somebody else took the port meanwhile
        if tries == 1:
            raise
        return _start(tries - 1)
    return port


def _use(metrics: OpenTelemetryConfig | PrometheusConfig) -> None:
    telemetry = TelemetryConfig(logging=temporal_core_logs(), metrics=metrics, attach_service_name=False)
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]
