"""What both workers and gateways count: the statuses of tasks, by whoever publishes them.

As in `everloop.activities.telemetry` and `everloop.gateway.instruments`, attributes hold names that
operators chose or words of a fixed set. Without a meter provider recording does nothing.
"""

from collections.abc import Iterable

from opentelemetry import metrics

from everloop.workflows.contract.tasks import TaskState

_statuses = metrics.get_meter("everloop").create_counter(
    "everloop.tasks.status",
    unit="{status}",
    description="Statuses that tasks took, each when it was first shown.",
)


def begin_statuses(agent_ids: Iterable[str]) -> None:
    """Let the counter begin at 0: of one that appears with its first event, no rate shows that event."""
    for agent_id in agent_ids:
        for state in TaskState:
            _statuses.add(0, {"agent": agent_id, "state": state.value})


def record_statuses(agent_id: str, states: Iterable[TaskState]) -> None:
    """Count statuses that a task has just taken."""
    for state in states:
        _statuses.add(1, {"agent": agent_id, "state": state.value})
