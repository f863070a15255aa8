"""Settings of logs, traces and metrics. Importing this loads no exporter."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from opentelemetry.util.re import parse_env_headers
from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from everloop.runtime.environment import Settings, StartError
from everloop.runtime.telemetry.logs import LogLevel


class MetricsAddressError(StartError):
    """EVERLOOP_METRICS_ADDRESS cannot be listened on; the message names it and the remedy."""


class Address(NamedTuple):
    """A host and port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `host:port`; an IPv6 address is in brackets.

        Raises:
            ValueError: it is neither.
        """
        host, _, port = text.rpartition(":")
        is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16  # noqa: PLR2004 -- the digits of 65535
        is_bracketed = host.startswith("[") and host.endswith("]")
        if not host.strip("[]") or not is_port or (":" in host and not is_bracketed):
            raise ValueError(f"{text!r} is no host:port; expected an address such as 127.0.0.1:9464")
        return cls(host.strip("[]"), int(port))


def _parse(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return Address.parse(given)
    except ValueError as error:
        raise ValueError(f"{error}, or leave it empty") from None


class TelemetrySettings(Settings):
    """Where logs, traces and metrics go. An empty variable counts as not set.

    The OpenTelemetry SDK itself reads the other OTEL_* variables (OpenTelemetry specification, "Environment
    Variable Specification"); the Temporal SDK gets only those of this class.
    """

    log_level: LogLevel = Field(default="info", validation_alias="EVERLOOP_LOG_LEVEL")
    """`debug`, `info`, `warning`, `error` or `critical`."""
    address: Annotated[Address | None, NoDecode, BeforeValidator(_parse)] = Field(
        default=None, validation_alias="EVERLOOP_METRICS_ADDRESS"
    )
    """`host:port` where Prometheus reads metrics at `/metrics`, with `/healthz` and `/readyz`, without
    authentication. Unset: nowhere. See docs/operation/metrics.md."""
    endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Where traces and metrics are sent by OTLP. Unset: nowhere. See docs/operation/traces-and-logs.md."""
    traces_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    """The same for traces alone."""
    metrics_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    """The same for metrics alone."""
    headers: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_HEADERS", repr=False)
    """Headers sent with both, as `name=value`, separated by commas."""
    metrics_headers: str = Field(
        default="", validation_alias="OTEL_EXPORTER_OTLP_METRICS_HEADERS", repr=False
    )
    """The same for metrics alone."""
    exporter: str = Field(default="otlp", validation_alias="OTEL_METRICS_EXPORTER")
    """`none`: metrics are not sent."""
    interval: float = Field(default=60_000, gt=0, validation_alias="OTEL_METRIC_EXPORT_INTERVAL")
    """Milliseconds between exports of metrics."""
    sdk_disabled: bool = Field(default=False, validation_alias="OTEL_SDK_DISABLED")
    """`true`: neither traces nor metrics are sent."""

    @property
    def traces(self) -> bool:
        return bool(self.traces_endpoint or self.endpoint) and not self.sdk_disabled

    @property
    def metrics(self) -> bool:
        """True if metrics are exported or served."""
        return bool(self.address or self.otlp_url)

    @property
    def otlp_url(self) -> str:
        """Endpoint of metrics; empty if they are not exported."""
        if self.exporter == "none" or self.sdk_disabled:
            return ""
        general = f"{self.endpoint.rstrip('/')}/v1/metrics" if self.endpoint else ""
        return self.metrics_endpoint or general

    @property
    def otlp_headers(self) -> Mapping[str, str]:
        """Headers of metrics exports, for instance for authentication."""
        return parse_env_headers(self.metrics_headers or self.headers, liberal=True)
