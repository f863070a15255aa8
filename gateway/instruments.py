"""What a gateway counts and measures, as `everloop.runtime.telemetry.instruments` says."""

from collections.abc import Collection

from everloop.runtime.telemetry.instruments import (
    METER,
    begin,
    begin_statuses,
    counter,
    histogram,
    record_statuses,
)
from everloop.workflows.contract.tasks import TERMINAL_STATES, TaskState

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_started = counter("everloop.tasks.started", "{task}", "Tasks that messages of clients started.")
_settled = counter(
    "everloop.tasks.settled",
    "{task}",
    "Tasks whose last status the gateway published, because their workflow could not.",
)
_open = METER.create_gauge(
    "everloop.tasks.open", "{task}", "Tasks that have not ended, as Temporal's visibility counts them."
)
_reachable = METER.create_gauge(
    "everloop.server.reachable", description="1 if the server answered the gateway's last probe, else 0."
)
_subscribers = METER.create_up_down_counter(
    "everloop.subscribers", "{stream}", "Streams and waiting requests that follow a task."
)
_lag = histogram(
    "everloop.stream.lag",
    "s",
    "Time from when an event was written to when it was queued for its subscribers.",
    bounds=LAG_SECONDS,
)
_rebuilt = counter(
    "everloop.views.rebuilt", "{view}", "Views that the store had lost, rebuilt from their workflows."
)
_problems = counter(
    "everloop.workflow_task.problems",
    "{task}",
    "Tasks whose workflow task was found to fail again and again.",
)
_refused = counter(
    "everloop.requests.refused",
    "{request}",
    "Requests of owners who asked for more than a share, and what there was no room for.",
)


def begin_counters(agent_ids: Collection[str]) -> None:
    """Let counters begin at 0."""
    begin_statuses(agent_ids)
    begin(_started, agent=agent_ids)
    begin(_settled, state=[state.value for state in TERMINAL_STATES])
    begin(_refused, limit=("rate", "open_tasks", "streams", "large_tasks"))
    begin(_problems, cause=[""])
    for counted in (_rebuilt, _subscribers):
        begin(counted)


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
