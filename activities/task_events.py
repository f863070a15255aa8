"""Publishing what a worker tells of a task, counted."""

from collections.abc import Sequence

from everloop.activities.call_lease import overtaken
from everloop.runtime.telemetry.statuses import record_statuses
from everloop.stores.leases import Lease, NotOursError
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.tasks import TaskRef


async def publish_events(
    views: TaskViews, task: TaskRef, events: Sequence[TaskEvent], lease: Lease | None = None
) -> None:
    """Publish events. A status counts in the metrics when it is new: a repeated call counts nothing.

    Without a lease only what the fold takes once may be published: statuses, and chunks of artifacts.

    Raises:
        OvertakenError: a later attempt has claimed the call.
    """
    try:
        states = await views.publish(task.task_id, task.run_id, events, lease)
    except NotOursError:
        raise overtaken() from None
    record_statuses(task.agent_id, states)
