"""What a schedule cannot know of the tasks that it begins."""

from datetime import datetime
from typing import TypeVar

from everloop.workflows.contract.names import derive_context_id
from everloop.workflows.contract.tasks import TaskInput

Begun = TypeVar("Begun", bound=TaskInput)


def begun(task: Begun, task_id: str, at: datetime) -> Begun:
    """Return a task as it begins.

    One that a schedule began gets its time, a context of its own unless it has one, and its message an id.
    """
    if not task.scheduled:
        return task
    return task.model_copy(
        update={
            "context_id": task.context_id or derive_context_id(task_id),
            "created_at": at,
            "message": task.message.model_copy(update={"message_id": task_id}),
        }
    )
