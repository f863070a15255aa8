"""The listener for metrics and probes of a process."""

from contextlib import closing

import httpx
import pytest
from pydantic import ValidationError

from everloop.local.servers import LOOPBACK, free_port
from everloop.runtime.environment import explain
from everloop.runtime.telemetry.metrics import MetricsListener
from everloop.runtime.telemetry.telemetry_settings import Address, TelemetrySettings

OTLP, OTLP_METRICS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def test_probes_tell_life_from_readiness() -> None:
    """A process is alive before it is ready, and ready until it is told to stop."""
    seen: list[tuple[int, int]] = []
    with (
        closing(MetricsListener(Address(LOOPBACK, free_port()))) as listener,
        httpx.Client(base_url=f"http://{listener.address}") as http,
    ):
        for is_ready in (False, True, False):
            listener.is_ready = is_ready
            seen.append((http.get("/healthz").status_code, http.get("/readyz").status_code))

    assert seen == [(200, 503), (200, 200), (200, 503)]


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", Address("127.0.0.1", 9464)), ("[::1]:65535", Address("::1", 65535))],
)
def test_an_address_is_read_as_it_is_written(text: str, address: Address) -> None:
    """An address is read in each form and written back the same."""
    settings = TelemetrySettings.model_validate({"EVERLOOP_METRICS_ADDRESS": text})

    assert settings.address == address
    assert str(settings.address) == text


@pytest.mark.parametrize("text", ["9464", "localhost", "localhost:0", "localhost:65536", "::1:80"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """An invalid address is refused with the variable's name, its value and the expected form."""
    with pytest.raises(ValidationError) as caught:
        TelemetrySettings.model_validate({"EVERLOOP_METRICS_ADDRESS": text})

    assert explain(caught.value) == (
        f"EVERLOOP_METRICS_ADDRESS: {text!r} is no host:port; expected an address such as 127.0.0.1:9464, "
        "or leave it empty"
    )


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, ""),
        ({OTLP: "http://c:4318"}, "http://c:4318/v1/metrics"),
        ({OTLP: "http://c:4318", OTLP_METRICS: "http://m/here"}, "http://m/here"),
        ({OTLP_METRICS: "http://m/here", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_metrics_are_sent_where_the_specification_says(variables: dict[str, str], url: str) -> None:
    """The URL of metrics follows OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP"."""
    assert TelemetrySettings.model_validate(variables).otlp_url == url


def test_headers_of_metrics_go_before_those_of_all() -> None:
    """Headers of metrics override those of all signals; they are percent-encoded, and not logged."""
    general, own = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"
    settings = TelemetrySettings.model_validate({general: "api-key=all", own: "api-key=se%20cret,x=1"})

    assert settings.otlp_headers == {"api-key": "se cret", "x": "1"}
    assert "se%20cret" not in repr(settings)
    assert TelemetrySettings.model_validate({general: "api-key=all"}).otlp_headers == {"api-key": "all"}
