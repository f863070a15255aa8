"""How workers and gateways count and measure, and what both of them count: the statuses of tasks.

Attributes hold names that operators chose (agents, tools, models) or words of a fixed set, never ids of
owners, contexts or tasks, nor names that a model made up. Without a meter provider recording does nothing.
docs/operation/metrics.md lists all instruments.
"""

from collections.abc import Collection, Sequence
from itertools import product

from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram, UpDownCounter

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
