"""Publishing what a worker tells of a task, counted."""

from collections.abc import Sequence

from stores.instruments import record_statuses
from stores.task_views import TaskViews
from workflows.contract.events import TaskEvent
from workflows.contract.tasks import TaskRef


async def publish_events(views: TaskViews, task: TaskRef, events: Sequence[TaskEvent]) -> None:
    """Publish events. A status counts in the metrics when it is new: a repeated call counts nothing."""
    record_statuses(task.agent_id, await views.publish(task.task_id, task.run_id, events))
