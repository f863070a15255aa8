"""Log lines that say which task they belong to."""

from contextlib import AbstractContextManager

from structlog.contextvars import bound_contextvars

from workflows.contract.tasks import TaskRef


def logging_task(task: TaskRef) -> AbstractContextManager[None]:
    """Put `task_id` and `context_id` on every log line of the block and of the asyncio tasks it starts."""
    return bound_contextvars(task_id=task.task_id, context_id=task.context_id)
