"""Spans that record a failure by its kind only: its message may hold content, or a secret.

A module of its own: whoever makes spans needs nothing of what exports them, which is slow to import.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

_tracer = trace.get_tracer("everloop")


@contextmanager
def span_without_content(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    error_type: Callable[[BaseException], str],
) -> Generator[Span]:
    """Open a span; `error_type` names what ends it badly."""
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            fail_span(span, error_type(error))
            raise


def fail_span(span: Span, error_type: str) -> None:
    """Say on a span what went wrong."""
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)
