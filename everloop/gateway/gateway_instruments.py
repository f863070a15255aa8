"""Metrics of a gateway, as described in `everloop.runtime.telemetry.instruments`."""

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

tasks_started = counter("everloop.tasks.started", "{task}", "Tasks that messages of clients started.")
tasks_finalized = counter(
    "everloop.tasks.settled",
    "{task}",
    "Tasks whose last status the gateway published, because their workflow could not.",
)
tasks_open = METER.create_gauge(
    "everloop.tasks.open", "{task}", "Tasks that have not ended, as Temporal's visibility counts them."
)
server_reachable = METER.create_gauge(
    "everloop.server.reachable", description="1 if the server answered the gateway's last probe, else 0."
)
subscribers = METER.create_up_down_counter(
    "everloop.subscribers", "{stream}", "Streams and waiting requests that follow a task."
)
stream_lag = histogram(
    "everloop.stream.lag",
    "s",
    "Time from when an event was written to when it was queued for its subscribers.",
    bounds=LAG_SECONDS,
)
views_rebuilt = counter(
    "everloop.views.rebuilt", "{view}", "Views that the store had lost, rebuilt from their workflows."
)
workflow_problems = counter(
    "everloop.workflow_task.problems",
    "{task}",
    "Tasks whose workflow task was found to fail again and again.",
)
requests_refused = counter(
    "everloop.requests.refused",
    "{request}",
    "Requests of owners who asked for more than a share, and what there was no room for.",
)


def begin_counters(agent_ids: Collection[str]) -> None:
    """Create counters with the value 0."""
    begin_statuses(agent_ids)
    begin(tasks_started, agent=agent_ids)
    begin(tasks_finalized, state=[state.value for state in TERMINAL_STATES])
    begin(requests_refused, limit=("rate", "open_tasks", "streams", "large_tasks"))
    begin(workflow_problems, cause=[""])
    for counted in (views_rebuilt, subscribers):
        begin(counted)


def record_finalized(agent_id: str, state: TaskState) -> None:
    """Count a last status that the gateway gave a task in place of its workflow."""
    tasks_finalized.add(1, {"state": state.value})
    record_statuses(agent_id, [state])
