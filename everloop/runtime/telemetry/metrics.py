"""Export of a process's metrics: to Prometheus, which scrapes them here, to an OTLP endpoint, or both.

Loaded only where metrics are on (2 MiB).
"""

import http.client
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import structlog
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from structlog.typing import FilteringBoundLogger
from temporalio.runtime import OpenTelemetryConfig, PrometheusConfig, Runtime, TelemetryConfig

from everloop.runtime.telemetry.logs import temporal_core_logs
from everloop.runtime.telemetry.telemetry_settings import Address, MetricsAddressError, TelemetrySettings

# The HTTP listener of a process for operators: metrics as Prometheus reads them, and probes.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, the only one that the Temporal SDK writes."""

REQUEST_TIMEOUT = 10.0
"""Seconds until a request must be complete: each open one occupies a thread."""

_POLL = 0.1
"""Seconds between checks for shutdown, the longest that closing takes."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class MetricsListener:
    """Answers /metrics, /healthz and /readyz in threads of its own, also while the event loop is busy.

    `read` returns the text of the metrics (empty at first). /healthz is 200 while the process runs; /readyz
    is 200 while `is_ready`, else 503.

    Raises:
        MetricsAddressError: the address cannot be listened on.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.read: Callable[[], bytes] = bytes
        self.is_ready = False
        self._server = _bind(address, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[_POLL], name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that takes its time must not hold up the end of the process
    listener: MetricsListener

    def handle_error(self, request: object, client_address: object) -> None:
        # A client that hangs up is no news; the inherited method would write its traceback to stderr.
        _log.debug("request for metrics failed", exc_info=True)


class _Server6(_MetricsServer):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server_version = "everloop"
    sys_version = ""
    server: _MetricsServer  # pyright: ignore[reportIncompatibleVariableOverride] -- _listen makes no other one

    def do_GET(self) -> None:
        listener = self.server.listener
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, listener.read(), CONTENT_TYPE)
            case "/healthz":
                self._answer(HTTPStatus.OK, b"ok\n")
            case "/readyz" if listener.is_ready:
                self._answer(HTTPStatus.OK, b"ready\n")
            case "/readyz":
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, b"expected /metrics, /healthz or /readyz\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Log nothing: probes come every few seconds."""

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _bind(address: Address, listener: MetricsListener) -> _MetricsServer:
    kind = _Server6 if ":" in address.host else _MetricsServer
    try:
        server = kind(address, _Handler)
    except OSError as error:
        raise MetricsAddressError(
            f"cannot listen on {address} for metrics: {error.strerror or error}; "
            "stop what listens there, or set EVERLOOP_METRICS_ADDRESS to another host:port"
        ) from error
    server.listener = listener
    return server


# The Temporal SDK's own metrics: polled on loopback for Prometheus, or pushed by OTLP.

_LOOPBACK = "127.0.0.1"

READ_TIMEOUT = 5.0
"""Timeout in seconds for the SDK's answer."""

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
"""Bucket bounds in seconds. The SDK's own mostly end at 10 s, and a task may take days."""


def _read_temporal(port: int) -> bytes:
    """Return the text of the SDK's metrics; empty, with a warning in the log, if it cannot be read.

    The SDK cannot write them to memory as text. Its `MetricBuffer` would pass every single change to
    Python.
    """
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=READ_TIMEOUT)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        _log.warning("metrics of the Temporal SDK not read", error=str(error))
        return b""
    finally:
        connection.close()


def _serve_temporal(tries: int = 20) -> int:
    """Serve the SDK's metrics on the loopback interface; return the port."""
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
        return _serve_temporal(tries - 1)
    return port


def _use(metrics: OpenTelemetryConfig | PrometheusConfig) -> None:
    telemetry = TelemetryConfig(logging=temporal_core_logs(), metrics=metrics, attach_service_name=False)
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]


SHUTDOWN_TIMEOUT = 5_000
"""Milliseconds for the last export of metrics."""


@dataclass(frozen=True)
class Metrics:
    """The metrics of a process: provider and listener."""

    provider: MeterProvider
    listener: MetricsListener | None

    def shutdown(self) -> None:
        """Export the last metrics and stop."""
        if self.listener:
            self.listener.close()
        try:
            self.provider.shutdown(timeout_millis=SHUTDOWN_TIMEOUT)
        except Exception as error:  # noqa: BLE001 -- the SDK raises just that; a process still has to end well
            _log.warning("metrics not sent", error=str(error))


def start_metrics(settings: TelemetrySettings, resource: Resource) -> Metrics:
    """Serve and export metrics according to the settings.

    Call it before any Temporal client is made. The Temporal SDK writes to one place only: to Prometheus, if
    that is on.

    Raises:
        MetricsAddressError: the listener's address is taken, or the endpoint is not a URL.
    """
    url = settings.otlp_url
    readers: list[MetricReader] = []
    listener = None
    if url:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 -- as for `_listen`

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    if settings.address:
        reader, listener = _listen(settings.address)
        readers.append(reader)
    else:
        _push_temporal(url, settings)
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return Metrics(provider, listener)


def _listen(address: Address) -> tuple[MetricReader, MetricsListener]:
    # 2 MiB, for watched processes only.
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 -- as above
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415 -- as above

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
    listener = MetricsListener(address)
    port = _serve_temporal()
    listener.read = lambda: generate_latest(registry) + _read_temporal(port)
    _log.info("metrics are served", address=str(address))
    return reader, listener


def _push_temporal(url: str, settings: TelemetrySettings) -> None:
    """Push the SDK's metrics to an OTLP endpoint over HTTP."""
    exported = OpenTelemetryConfig(
        url=url,
        headers=settings.otlp_headers,
        metric_periodicity=timedelta(milliseconds=settings.interval),
        durations_as_seconds=True,
        http=True,
        histogram_bucket_overrides=BUCKETS,
    )
    try:
        _use(exported)
    except ValueError as error:
        raise MetricsAddressError(
            f"cannot send metrics: {error}; set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT or "
            "OTEL_EXPORTER_OTLP_ENDPOINT to an address such as http://127.0.0.1:4318"
        ) from error
