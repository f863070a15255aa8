"""Costs of a task in Temporal, from its histories."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client, WorkflowExecutionStatus

ACTIONS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "workflow starts",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes",
    EventType.EVENT_TYPE_MARKER_RECORDED: "markers",
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: "child workflows",
}
"""Events that are an action each, as Temporal Cloud bills.

Of an activity each attempt and each heartbeat is one. A child workflow counts twice: here, and with its
start. A continue-as-new counts as the start of its new run.
"""


@dataclass
class Weight:
    """Sums over all runs of a task, of its sub-agents and of its push deliveries."""

    events: int = 0
    history_bytes: int = 0
    state_transitions: int = 0
    actions: Counter[str] = field(default_factory=Counter[str])

    def add_event(self, event: HistoryEvent) -> None:
        """Count an event, and its billed actions."""
        self.events += 1
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            self.actions["activities"] += event.activity_task_started_event_attributes.attempt
        elif kind := ACTIONS.get(EventType.ValueType(event.event_type)):
            self.actions[kind] += 1

    def add_run(self, described: DescribeWorkflowExecutionResponse) -> None:
        """Add the server's own counts of a run."""
        info = described.workflow_execution_info
        self.history_bytes += info.history_size_bytes
        self.state_transitions += info.state_transition_count


async def weigh(client: Client, task_id: str, *, is_open: bool) -> Weight:
    """Weigh a task and all workflows below it; unless it stays open, after they have ended."""
    while not await _is_ready(client, task_id, is_open=is_open):  # noqa: ASYNC110 -- the server's pace
        await asyncio.sleep(0.1)
    weight = Weight()
    async for run in client.list_workflows(f"WorkflowId STARTS_WITH '{task_id}'"):
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        weight.add_run((await handle.describe()).raw_description)
        async for event in handle.fetch_history_events():
            weight.add_event(event)
    return weight


async def _is_ready(client: Client, task_id: str, *, is_open: bool) -> bool:
    """Return whether visibility is up to date: it lags behind for a moment."""
    query = f"WorkflowId STARTS_WITH '{task_id}'"
    runs = [run async for run in client.list_workflows(query)]
    running = [run for run in runs if run.status == WorkflowExecutionStatus.RUNNING]
    return bool(runs) and (is_open or not running)
