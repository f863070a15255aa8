"""What a gateway counts and measures, as OpenTelemetry instruments; docs/metrics.md lists them.

Attributes hold names that operators chose (agents) or words of a fixed set, never ids of owners, contexts or
tasks. Without a meter provider recording does nothing.
"""

from collections.abc import Collection

from opentelemetry import metrics

from everloop.runtime.telemetry.statuses import begin_statuses, record_statuses
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskState

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_meter = metrics.get_meter("everloop")

_started = _meter.create_counter(
    "everloop.tasks.started", unit="{task}", description="Tasks that messages of clients started."
)
_settled = _meter.create_counter(
    "everloop.tasks.settled",
    unit="{task}",
    description="Tasks whose last status the gateway published, because their workflow could not.",
)
_open = _meter.create_gauge(
    "everloop.tasks.open",
    unit="{task}",
    description="Tasks that have not ended, as Temporal's visibility counts them.",
)
_reachable = _meter.create_gauge(
    "everloop.server.reachable",
    description="1 if the server answered the gateway's last probe, else 0.",
)
_subscribers = _meter.create_up_down_counter(
    "everloop.subscribers", unit="{stream}", description="Streams and waiting requests that follow a task."
)
_lag = _meter.create_histogram(
    "everloop.stream.lag",
    unit="s",
    description="Time from when an event was written to when it was queued for its subscribers.",
    explicit_bucket_boundaries_advisory=LAG_SECONDS,
)
_rebuilt = _meter.create_counter(
    "everloop.views.rebuilt",
    unit="{view}",
    description="Views that the store had lost, rebuilt from their workflows.",
)
_problems = _meter.create_counter(
    "everloop.workflow_task.problems",
    unit="{task}",
    description="Tasks whose workflow task was found to fail again and again.",
)
_refused = _meter.create_counter(
    "everloop.requests.refused",
    unit="{request}",
    description="Requests of owners who asked for more than a share, and what there was no room for.",
)


def begin_counters(agent_ids: Collection[str]) -> None:
    """Let counters begin at 0, as `everloop.runtime.telemetry.statuses.begin_statuses` says."""
    begin_statuses(agent_ids)
    for agent_id in agent_ids:
        _started.add(0, {"agent": agent_id})
    for state in TERMINAL_STATES:
        _settled.add(0, {"state": state.value})
    for limit in ("rate", "open_tasks", "streams", "large_tasks"):
        _refused.add(0, {"limit": limit})
    _problems.add(0, {"cause": ""})
    _rebuilt.add(0)
    _subscribers.add(0)


def record_started(agent_id: str) -> None:
    """Count a task that a message of a client has started."""
    _started.add(1, {"agent": agent_id})


def record_finalized(agent_id: str, state: TaskState) -> None:
    """Count a last status that the gateway gave a task in place of its workflow."""
    _settled.add(1, {"state": state.value})
    record_statuses(agent_id, [state])


def record_open(agent_id: str, state: TaskState, count: int) -> None:
    """Set how many tasks of an agent are in a state."""
    _open.set(count, {"agent": agent_id, "state": state.value})


def record_reachable(server: str, *, is_reachable: bool) -> None:
    """Set whether a server answers."""
    _reachable.set(int(is_reachable), {"server": server})


def record_subscribed(change: int) -> None:
    """Count a subscriber that came (1) or went (-1)."""
    _subscribers.add(change)


def record_lag(seconds: float) -> None:
    """Record how long an event took to the queues of its subscribers; clocks may differ by a little."""
    _lag.record(max(0.0, seconds))


def record_rebuilt() -> None:
    """Count a view that was rebuilt."""
    _rebuilt.add(1)


def record_problem(cause: str) -> None:
    """Count a task that is stuck."""
    _problems.add(1, {"cause": cause})


def record_refused(limit: str) -> None:
    """Count a request over a limit: "rate", "open_tasks", "streams" or "large_tasks"."""
    _refused.add(1, {"limit": limit})
