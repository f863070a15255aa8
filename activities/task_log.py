"""Log lines that say which task they belong to."""

from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import trace
from structlog.contextvars import bind_contextvars, bound_contextvars
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everloop.runtime.telemetry.logs import bind_task, task_fields
from everloop.workflows.contract.tasks import TaskRef


def logging_task(task: TaskRef) -> AbstractContextManager[None]:
    """Name the task on every log line of the block and of the asyncio tasks it starts."""
    return bound_contextvars(**task_fields(task))


class TaskLogging(Interceptor):
    """Names the task also on what the SDK logs about an activity, such as that it failed.

    It does so after the activity has ended, and the span of it too.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 -- the SDK's
        return _Binding(next)


class _Binding(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401 -- the SDK's
        task = getattr(input.args[0], "task", None) if input.args else None
        if isinstance(task, TaskRef):
            bind_task(task)  # for good: each activity runs in an asyncio task of its own
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            bind_contextvars(trace_id=trace.format_trace_id(context.trace_id))
        return await super().execute_activity(input)
