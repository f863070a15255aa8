"""What the failure of a call means for the task."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError

from everloop.workflows.contract.messages import Usage
from everloop.workflows.limits import TaskStoppedError


def failure_type(error: ActivityError) -> str | None:
    """Return the name of the failure (`everloop.workflows.contract.failures`) that ended an activity."""
    return error.cause.type if isinstance(error.cause, ApplicationError) else None


def failure_text(error: ActivityError | ChildWorkflowError) -> str:
    """Return what went wrong, in the words of whoever failed."""
    cause = error.cause or error
    return cause.message if isinstance(cause, ApplicationError) else f"{type(cause).__name__}: {cause}"


def final_failure(error: BaseException, usage: Usage) -> ApplicationError:
    """Return the named failure that ends the workflow; its message is what the client reads.

    What the task has used goes along: the parent of a sub-agent counts it.
    """
    if isinstance(error, TaskStoppedError):
        return ApplicationError(str(error), usage, type=error.type, non_retryable=True)
    if isinstance(error, ActivityError):
        return ApplicationError(failure_text(error), usage, type=failure_type(error), non_retryable=True)
    return ApplicationError(f"{type(error).__name__}: {error}", usage, non_retryable=True)


def stop_if_cancelled() -> None:
    """Stop where a call, by ending well or badly, has hidden that it was cancelled. Ask after every call.

    Raises:
        CancelledError: somebody cancelled the task, or its wall clock has run out.
    """
    this = asyncio.current_task()
    if workflow.cancellation_reason() is not None or (this and this.cancelling()):
        raise asyncio.CancelledError
