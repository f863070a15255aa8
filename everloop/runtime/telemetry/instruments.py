"""How workers and gateways count, measure and trace, and what both of them count: the statuses of tasks.

Attributes hold names that operators chose (agents, tools, models) or words of a fixed set, never ids of
owners, contexts or tasks, nor names that a model made up. Without a meter provider recording does nothing.
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
    """Declare what only grows."""
    return METER.create_counter(name, unit, description)


def histogram(name: str, unit: str, description: str, *, bounds: Sequence[float]) -> Histogram:
    """Declare what is measured, with the bounds of its buckets."""
    return METER.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)


def begin(instrument: Counter | UpDownCounter, **values: Collection[str]) -> None:
    """Let a counter begin at 0 for all `values` of its attributes.

    Of one that appears with its first event, no rate shows that event.
    """
    for combination in product(*values.values()):
        instrument.add(0, dict(zip(values, combination, strict=True)))


_statuses = counter(
    "everloop.tasks.status", "{status}", "Statuses that tasks took, each when it was first published."
)


def begin_statuses(agent_ids: Collection[str]) -> None:
    """Let the counter of statuses begin."""
    begin(_statuses, agent=agent_ids, state=[state.value for state in TaskState])


def record_statuses(agent_id: str, states: Collection[TaskState]) -> None:
    """Count statuses that a task has just taken."""
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
    """Open a span; `error_type` names what ends it badly."""
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
    """Return where a server is. Nothing else of its URL: there may be a secret in it."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", "server.port": parts.port or _PORTS.get(parts.scheme, 0)}


def fail_span(span: Span, error_type: str) -> None:
    """Say on a span what went wrong."""
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)
