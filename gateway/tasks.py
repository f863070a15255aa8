"""The only module of the gateway that talks to Temporal."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from gateway.errors import NoWorkerError, TaskEndedError, TaskUnknownError, TemporalUnavailableError
from workflows.agent_task import AgentTask
from workflows.contract import failures, names
from workflows.contract.messages import UserMessage
from workflows.contract.tasks import TaskInput, TaskResult, TaskState, TaskStatus, TaskView

CALL_TIMEOUT = 5.0
"""Seconds for one call to Temporal."""

UPDATE_TIMEOUT = 10.0
"""Seconds until a worker must have taken a message in."""

QUERY_TIMEOUT = 3.0
"""Seconds until a worker must have answered for a task; the fallback has to fit in as well."""

_UNAVAILABLE = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
    }
)

_ENDED = frozenset({failures.TASK_TERMINAL, "AcceptedUpdateCompletedWorkflow"})
"""Failures of an update that say that the task ended first; the second is Temporal's own."""

_ENDINGS = {
    WorkflowExecutionStatus.COMPLETED: (TaskState.COMPLETED, "the task is done"),
    WorkflowExecutionStatus.FAILED: (TaskState.FAILED, "the task failed"),
    WorkflowExecutionStatus.CANCELED: (TaskState.CANCELED, "the task was canceled"),
    WorkflowExecutionStatus.TERMINATED: (TaskState.FAILED, "an operator terminated the task"),
    WorkflowExecutionStatus.TIMED_OUT: (TaskState.FAILED, "the task ran out of time"),
}
"""What a closed workflow makes of its task where the task has not said so itself."""

TaskHandle = WorkflowHandle[AgentTask, TaskResult]


@dataclass(frozen=True)
class Ending:
    """How the workflow of a task ended. `run_id` is empty if the workflow is gone."""

    state: TaskState
    reason: str
    at: datetime
    run_id: str


class Tasks:
    """Tasks as workflows: the workflow id is the task id."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, task_id: str, task: TaskInput, *, summary: str) -> bool:
        """Start the workflow of a task and return True; return False if there was one of this id already.

        Repeating it is safe: a task is never started twice, not even after it ended.

        Raises:
            TemporalUnavailableError: it may or may not have started; start it again.
        """
        attributes = TypedSearchAttributes(
            [
                SearchAttributePair(names.AGENT_ID, task.agent.id),
                SearchAttributePair(names.CONTEXT_ID, task.context_id),
                SearchAttributePair(names.OWNER, task.owner),
                SearchAttributePair(names.TASK_STATE, TaskState.SUBMITTED),
            ]
        )
        try:
            async with _temporal_answers(CALL_TIMEOUT):
                await self._client.start_workflow(
                    AgentTask.run,
                    task,
                    id=task_id,
                    task_queue=self._task_queue,
                    # "Use existing" would hide whether this call started the task, and with it whether a
                    # missing view is one that nobody wrote yet or one that was lost.
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    search_attributes=attributes,
                    static_summary=summary,
                )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def add_message(self, task_id: str, message: UserMessage, *, update_id: str) -> None:
        """Hand a message to a task; the same update id is taken in once.

        Raises:
            TaskEndedError: the task takes no more messages.
            NoWorkerError: no worker took it in time; it may yet be taken, so repeat it with the same id.
            TemporalUnavailableError: the same, for Temporal.
        """
        try:
            async with _temporal_answers(UPDATE_TIMEOUT):
                await self._handle(task_id).execute_update(AgentTask.add_message, message, id=update_id)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type in _ENDED:
                raise TaskEndedError(f"task {task_id!r} has ended and takes no more messages") from error
            raise
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise NoWorkerError from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise TaskEndedError(f"task {task_id!r} has ended and takes no more messages") from error
            raise

    async def cancel(self, task_id: str) -> None:
        """Ask a task to stop; it publishes its last status itself.

        Raises:
            TaskUnknownError: no workflow of this id runs.
        """
        async with _temporal_answers(CALL_TIMEOUT), _known(task_id):
            await self._handle(task_id).cancel()

    async def view(self, task_id: str) -> TaskView:
        """Ask the workflow for the whole view of its task.

        Raises:
            TaskUnknownError: there is no such workflow.
            NoWorkerError: no worker answered in time.
        """
        try:
            async with asyncio.timeout(QUERY_TIMEOUT), _known(task_id):
                return await self._handle(task_id).query(AgentTask.view)
        except (TimeoutError, RPCError, WorkflowQueryFailedError) as error:
            raise NoWorkerError from error

    async def submitted_view(self, task_id: str) -> TaskView:
        """Return the view that a running task began with, as its history tells it: no worker is needed.

        Raises:
            TaskUnknownError: there is no such task.
            NoWorkerError: the task has ended, so that its beginning would mislead.
        """
        handle = self._handle(task_id)
        async with _temporal_answers(CALL_TIMEOUT - QUERY_TIMEOUT), _known(task_id):
            description = await handle.describe()
            if description.workflow_type != "AgentTask":
                raise TaskUnknownError(task_id)
            if description.status is not WorkflowExecutionStatus.RUNNING:
                raise NoWorkerError
            events = handle.fetch_history_events(page_size=1)
            started = (await anext(events)).workflow_execution_started_event_attributes
            (task,) = await self._client.data_converter.decode(started.input.payloads, [TaskInput])
        return submitted_view(task_id, task)

    async def ending(self, task_id: str) -> Ending | None:
        """Return how the workflow of a task that was once started ended, or None while it runs.

        Raises:
            TemporalUnavailableError: Temporal does not tell.
        """
        try:
            async with _temporal_answers(CALL_TIMEOUT), _known(task_id):
                workflow = await self._handle(task_id).describe()
        except TaskUnknownError:
            reason = "the workflow of the task no longer exists"
            return Ending(TaskState.FAILED, reason, datetime.now(UTC), run_id="")
        except RPCError as error:
            raise TemporalUnavailableError from error
        if not workflow.status or workflow.status not in _ENDINGS:
            return None
        state, reason = _ENDINGS[workflow.status]
        return Ending(state, reason, workflow.close_time or datetime.now(UTC), workflow.run_id)

    async def check(self) -> None:
        """Raise unless Temporal answers for our namespace."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        await self._client.workflow_service.describe_namespace(
            request, timeout=timedelta(seconds=CALL_TIMEOUT)
        )

    def _handle(self, task_id: str) -> TaskHandle:
        return self._client.get_workflow_handle_for(AgentTask.run, task_id)


def submitted_view(task_id: str, task: TaskInput) -> TaskView:
    """Return the view of a task that no worker has seen yet."""
    return TaskView(
        task_id=task_id,
        context_id=task.context_id,
        owner=task.owner,
        agent_id=task.agent.id,
        created_at=task.created_at,
        status=TaskStatus(state=TaskState.SUBMITTED, at=task.created_at),
        history=(task.message,),
    )


@asynccontextmanager
async def _temporal_answers(seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TemporalUnavailableError from error
    except RPCError as error:
        if error.status in _UNAVAILABLE:
            raise TemporalUnavailableError from error
        raise


@asynccontextmanager
async def _known(task_id: str) -> AsyncGenerator[None]:
    try:
        yield
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise TaskUnknownError(task_id) from error
        raise
