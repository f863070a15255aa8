"""Publishing what an activity does not depend on."""

from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from everloop.activities.lease import overtaken
from everloop.runtime.telemetry.instruments import record_statuses
from everloop.stores.leases import Lease, NotOursError
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.tasks import TaskRef

# Publishing the events of a task, counted.


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


_log = structlog.get_logger()


async def try_publish(views: TaskViews, task: TaskRef, events: Sequence[TaskEvent], lease: Lease) -> bool:
    """Publish events; return whether it worked.

    Raises:
        OvertakenError: a later attempt has claimed the call.
    """
    try:
        if events:
            await publish_events(views, task, events, lease)
    except (RedisError, OSError) as error:
        _log.warning("events not published", error_type=type(error).__name__)
        return False
    return True
