"""Exported fields of a span."""

import socket
import threading

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from everloop.local.servers import LOOPBACK
from everloop.runtime.telemetry.setup import SENDING, Telemetry
from everloop.runtime.telemetry.traces import WithoutErrorTexts, export_traces

CONTENT = "what somebody said"


def fail() -> None:
    raise ValueError(CONTENT)


def exported(*, fails: bool) -> ReadableSpan:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(WithoutErrorTexts(exporter)))
    tracer = provider.get_tracer("library")
    try:
        with tracer.start_as_current_span("work", attributes={"kept": 1}) as span:
            span.add_event("step", {"number": 2})
            if fails:
                fail()
    except ValueError:
        pass
    (sent,) = exporter.get_finished_spans()
    return sent


def test_an_error_leaves_by_its_type_alone() -> None:
    """Temporal's SDK and others record texts and stacks, which quote users and tools."""
    span = exported(fails=True)

    step, error = span.events
    assert (step.name, dict(step.attributes or {})) == ("step", {"number": 2})
    assert (error.attributes or {})["exception.type"] == "ValueError"
    assert not span.status.is_ok
    assert (span.name, dict(span.attributes or {})) == ("work", {"kept": 1})
    assert CONTENT not in span.to_json()


def test_a_collector_that_does_not_answer_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stops waiting, and logs that, while the request for its spans is still open."""
    with socket.create_server((LOOPBACK, 0)) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{LOOPBACK}:{collector.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
        provider = export_traces(Resource({}))
        provider.get_tracer("ours").start_span("work").end()
        with capture_logs() as logs:
            Telemetry(provider, None, ()).shutdown(wait=0.2)
        request, _ = collector.accept()
        with request:
            request.setblocking(False)
            with pytest.raises(BlockingIOError):  # open, and nothing more to read
                _read_to_the_end(request)
        (sending,) = (thread for thread in threading.enumerate() if thread.name == SENDING)
        sending.join()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("spans not sent", "the collector did not answer within 0.2 s")
    ]


def _read_to_the_end(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass
