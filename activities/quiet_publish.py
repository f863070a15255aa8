"""Publishing what an activity does not depend on."""

from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from everloop.activities.task_events import publish_events
from everloop.stores.leases import Lease
from everloop.stores.views.interface import TaskViews
from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.tasks import TaskRef

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
