"""Counters, histograms and spans of workers and gateways, and the counter of task statuses that both have.

Attributes hold names that operators chose (agents, tools, models) or words of a fixed set, never ids of
owners, contexts or tasks, nor names that a model invented. Without a meter provider recording is a no-op.
docs/operation/metrics.md lists all instruments.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from urllib.parse import urlsplit

from opentelemetry import metrics, trace
from opentelemetry.metrics import Counter, Histogram, UpDownCounter
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from everloop.workflows.contract.tasks import TaskState

METER = metrics.get_meter("everloop")


def counter(name: str, unit: str, description: str) -> Counter:
    """Declare a monotonic counter."""
    return METER.create_counter(name, unit, description)


def histogram(name: str, unit: str, description: str, *, bounds: Sequence[float]) -> Histogram:
    """Declare a histogram with explicit bucket bounds."""
    return METER.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)


def begin(instrument: Counter | UpDownCounter, **values: Collection[str]) -> None:
    """Initialize a counter to 0 for all combinations of `values`.

    Otherwise a rate would miss the first event of each combination.
    """
    for combination in product(*values.values()):
        instrument.add(0, dict(zip(values, combination, strict=True)))


_statuses = counter(
    "everloop.tasks.status", "{status}", "Statuses that tasks took, each when it was first published."
)


def begin_statuses(agent_ids: Collection[str]) -> None:
    begin(_statuses, agent=agent_ids, state=[state.value for state in TaskState])


def record_statuses(agent_id: str, states: Collection[TaskState]) -> None:
    """Count the new statuses of a task."""
    for state in states:
        _statuses.add(1, {"agent": agent_id, "state": state.value})


# Spans that record a failure by its kind only: its message may hold content, or a secret.

_tracer = trace.get_tracer("everloop")


@contextmanager
def span_without_content(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    error_type: Callable[[BaseException], str],
) -> Generator[Span]:
    """Open a span; `error_type` maps an exception to the type recorded on failure."""
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            fail_span(span, error_type(error))
            raise


_PORTS = {"http": 80, "https": 443}


def server_of(url: str) -> dict[str, AttributeValue]:
    """Return the host and port of a URL as attributes. The rest may hold a secret."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", "server.port": parts.port or _PORTS.get(parts.scheme, 0)}


def fail_span(span: Span, error_type: str) -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)
