"""What tool calls tell subscribers, and the cache that the next model call reads."""

import structlog
from redis.exceptions import RedisError
from temporalio import activity

from activities.quiet_publish import try_publish
from activities.task_events import publish_events
from activities.tool_result import excerpt
from stores.task_views import TaskViews
from stores.transcripts import Transcripts
from workflows.contract.events import StatusChanged, TaskEvent, ToolCompleted, ToolStarted
from workflows.contract.messages import ToolCall, ToolMessage
from workflows.contract.tasks import TaskRef

_log = structlog.get_logger()


def started(call: ToolCall) -> ToolStarted:
    """Return the event that a call begins to run, in this attempt."""
    return ToolStarted(call_id=call.id, name=call.name, attempt=activity.info().attempt)


class ToolEvents:
    """Publishes for the calls of one process."""

    def __init__(self, views: TaskViews, transcripts: Transcripts) -> None:
        self._views = views
        self._transcripts = transcripts

    async def announce(self, task: TaskRef, status: StatusChanged | None, *events: TaskEvent) -> None:
        """Publish what has to be known before a call goes on: above all the status that comes with it."""
        told = (status, *events) if status else events
        if told:
            await publish_events(self._views, task, told)

    async def tell(self, task: TaskRef, event: TaskEvent) -> None:
        """Publish an event that nobody depends on."""
        await try_publish(self._views, task, (event,))

    async def end(self, task: TaskRef, position: int, result: ToolMessage) -> None:
        """Cache the result and tell subscribers. The result itself is safe in history, so both may fail."""
        try:
            await self._transcripts.put(task.task_id, task.run_id, position, (result,))
        except (RedisError, OSError) as error:
            _log.warning("tool result not cached", call_id=result.call_id, error_type=type(error).__name__)
        completed = ToolCompleted(
            call_id=result.call_id,
            name=result.name,
            outcome=result.outcome,
            excerpt=excerpt(result.content),
        )
        await self.tell(task, completed)
