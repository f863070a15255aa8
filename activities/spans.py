"""Spans that tell of a failure by its kind only: its message may hold content, or a secret."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode

_tracer = trace.get_tracer("everloop.activities")


@contextmanager
def span_without_content(
    name: str, kind: SpanKind, attributes: Mapping[str, str], error_type: Callable[[BaseException], str]
) -> Generator[Span]:
    """Open a span; `error_type` names what ends it badly."""
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", error_type(error))
            span.set_status(StatusCode.ERROR)
            raise
