"""Tasks as workflows: start, updates, queries."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import (
    Client,
    WorkflowFailureError,
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

from everloop.gateway.errors import (
    CALL_TIMEOUT,
    RPC_TIMEOUT,
    AnswerInvalidError,
    GatewayError,
    MessageChangedError,
    NoWorkerError,
    TaskBusyError,
    TaskEndedError,
    TaskPausedError,
    TaskUnknownError,
    translate_blob_errors,
    translate_not_found,
    translate_temporal_errors,
)
from everloop.runtime.temporal.describe import describe, find_run, is_not_found, namespace_id
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.messages import (
    AgentMessage,
    TextPart,
    TranscriptMessage,
    UserMessage,
    content_digest,
)
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import ApproverAnswer
from everloop.workflows.contract.tasks import (
    Route,
    TaskInput,
    TaskProgress,
    TaskResult,
    TaskState,
    TaskStatus,
    TaskView,
    TranscriptPage,
    begun,
)

UPDATE_TIMEOUT = 10.0
"""Seconds in which a worker must accept a message."""

UPDATE_PAUSE = 0.02
"""Seconds until a message is sent to the next run of a task that continues as a new one."""

QUERY_TIMEOUT = 3.0
"""Seconds in which a worker must answer a query; the fallback has to fit in as well."""

BEGINNING = 20
"""Events that describe the start of a task: one page of its history."""

CANCELED_BEFORE_WORK = "canceled before a worker took it"

_CLOSED_BEFORE_RESULT = "AcceptedUpdateCompletedWorkflow"
"""Temporal's failure of an accepted update whose run ended before its result."""

_RUN_CHANGED = frozenset({RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION})
"""Temporal's errors for an update of a run that has ended, or that continues as a new run at that moment."""

DECISION_TIMEOUT = 120.0
"""Seconds that a model, and the workers that call it, may take to decide."""

_UPDATE = "wait_for_route"
_UPDATE_ID = f"everloop/{_UPDATE}"
"""The same for all callers. Ids of clients' messages have another prefix (`names.message_update_id`)."""

_Answer = TypeVar("_Answer")

TaskHandle = WorkflowHandle[Any, TaskResult]


@dataclass(frozen=True)
class Beginning:
    """Start of a task, from its history. `canceled_at`: when it was canceled, if before all work."""

    submitted: TaskView
    run_id: str
    canceled_at: datetime | None

    @property
    def view(self) -> TaskView:
        """The initial view of the task, while nothing newer is available."""
        if self.canceled_at is None:
            return self.submitted
        status = canceled_status(self.submitted.task_id, self.canceled_at)
        return self.submitted.model_copy(update={"run_id": self.run_id, "status": status})


class Tasks:
    """Tasks as workflows: the workflow id is the task id."""

    def __init__(self, client: Client, task_queue: str, *, splits_queues: bool = False) -> None:
        self._client = client
        self._task_queue = task_queue
        self._splits_queues = splits_queues

    async def start(self, task_id: str, task: TaskInput, *, summary: str) -> bool:
        """Start the workflow of a task; return False if one with this id exists already.

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
            async with translate_temporal_errors():
                await self._client.start_workflow(
                    names.WORKFLOW_TYPE,
                    task.model_copy(update={"splits_queues": self._splits_queues}),
                    id=task_id,
                    task_queue=self._task_queue,
                    # "Use existing" would hide whether this call started the task, and with it whether a
                    # missing view has yet to be written or was lost.
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    search_attributes=attributes,
                    static_summary=summary,
                    priority=names.place_in_queues(task.owner, task.agent.priority),
                )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def add_message(self, task_id: str, message: UserMessage) -> None:
        """Send a message to a task, which accepts it once.

        Raises:
            TaskEndedError: the task has ended; it may have accepted this message before.
            AnswerInvalidError: the task waits for an answer, and the message is not one.
            TaskBusyError: the task has too many unread messages.
            MessageChangedError: its id was used with another message.
            TaskPausedError: an operator has paused the task.
            NoWorkerError: no worker accepted it in time; one still may, so repeat it.
            TemporalUnavailableError: the same, for Temporal.
        """
        update_id = names.message_update_id(message.message_id)
        stored_digest = await self._hand_over(task_id, "add_message", message, update_id)
        if stored_digest != content_digest(message):
            raise MessageChangedError(names.view_message_id(message.message_id))

    async def answer_for_owner(self, task_id: str, message: ApproverAnswer) -> str:
        """Send the answer of an approver to another owner's task; return the time of its acceptance.

        Raises the errors of `add_message`; AnswerInvalidError: the question is closed, or for other
        approvers.
        """
        digest = hashlib.sha256(message.model_dump_json().encode()).hexdigest()[:32]
        return await self._hand_over(task_id, "take_approvers_answer", message, f"approval/{digest}")

    async def _hand_over(self, task_id: str, update: str, message: Wire, update_id: str) -> str:
        """Send an update to a task, to the continuing run if one is ending; return its result."""
        try:
            async with translate_temporal_errors(UPDATE_TIMEOUT):
                while not (answer := await self._update(task_id, update, message, update_id)):
                    # Its run ended during the update; unless the task continued in another, it has ended too.
                    if not await self._is_running(task_id):
                        raise TaskEndedError(f"task {task_id!r} has ended and takes no more messages")
                    await asyncio.sleep(UPDATE_PAUSE)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise NoWorkerError from error
        return answer

    async def has_taken_in(self, task_id: str, message: UserMessage) -> bool:
        """Whether a task has accepted this very message before; False also without a worker.

        Raises:
            TaskUnknownError: the workflow does not exist.
        """
        try:
            async with asyncio.timeout(QUERY_TIMEOUT), translate_not_found(task_id), translate_blob_errors():
                taken = await self._handle(task_id).query("taken_in", message.message_id, result_type=str)
        except (TimeoutError, RPCError, WorkflowQueryFailedError, ValueError):
            return False
        return taken == content_digest(message)

    async def _update(self, task_id: str, update: str, message: Wire, update_id: str) -> str:
        """Send an update to the current run; return its result, empty if that run ended, or failed a step.

        It may have been accepted all the same. The task recognizes retries.
        """
        try:
            return await self._handle(task_id).execute_update(update, message, id=update_id, result_type=str)
        except WorkflowUpdateFailedError as error:
            failure = error.cause
            if not isinstance(failure, ApplicationError):
                raise
            if refused := _refusal(task_id, failure):
                raise refused from error
            if failure.type != _CLOSED_BEFORE_RESULT:
                raise
            return ""
        except RPCError as error:
            if error.status not in _RUN_CHANGED:
                raise
            return ""

    async def _is_running(self, task_id: str) -> bool:
        run = await find_run(self._client, task_id)
        if run and run.is_paused:
            raise TaskPausedError
        return run is not None and run.is_running

    async def agent_of(self, task_id: str) -> str | None:
        """Return the agent of a task's start; None if Temporal has no such task.

        Raises:
            TemporalUnavailableError: Temporal does not respond.
        """
        async with translate_temporal_errors():
            run = await find_run(self._client, task_id)
        is_task = run is not None and run.workflow_type == names.WORKFLOW_TYPE
        return run.search_attributes.get(names.AGENT_ID) if run and is_task else None

    async def cancel(self, task_id: str) -> None:
        """Request the cancellation of a task, which publishes its last status itself.

        Raises:
            TaskUnknownError: no workflow of this id runs.
        """
        async with translate_temporal_errors(), translate_not_found(task_id):
            await self._handle(task_id).cancel()

    async def view(self, task_id: str) -> TaskView:
        """Query the workflow for the complete view of its task.

        Raises:
            TaskUnknownError: the workflow does not exist.
            NoWorkerError: no worker answered in time.
            PayloadLostError, PayloadsUnavailableError: its answer cannot be read.
        """
        return await self._ask(task_id, "view", TaskView)

    async def _ask(self, task_id: str, query: str, kind: type[_Answer], *about: int) -> _Answer:
        """Query a worker within the timeout, and translate a missing answer."""
        try:
            async with asyncio.timeout(QUERY_TIMEOUT), translate_not_found(task_id), translate_blob_errors():
                return await self._handle(task_id).query(query, args=about, result_type=kind)
        except (TimeoutError, RPCError, WorkflowQueryFailedError) as error:
            raise NoWorkerError from error
        except ValueError as error:
            # A paused run rejects queries, and the SDK has no name for that status.
            async with translate_temporal_errors(), translate_not_found(task_id):
                if (await describe(self._client, task_id)).is_paused:
                    raise NoWorkerError from error
            raise

    async def progress(self, task_id: str) -> TaskProgress:
        """Query the position of the workflow's loop. It has processed all earlier signals.

        Raises:
            the errors of `view`.
        """
        return await self._ask(task_id, "progress", TaskProgress)

    async def transcript(self, task_id: str) -> list[TranscriptMessage]:
        """Query the workflow for the transcript of its task.

        Raises:
            the errors of `view`.
        """
        messages, start = list[TranscriptMessage](), 0
        while True:
            page = await self._ask(task_id, "transcript", TranscriptPage, start)
            messages += page.messages
            if page.next is None:
                return messages
            start = page.next

    async def beginning(self, task_id: str) -> Beginning:
        """Return the start of an open task from its history, without a worker.

        Raises:
            TaskUnknownError: the task does not exist.
            NoWorkerError: the task has ended, so that its start would mislead.
            PayloadLostError, PayloadsUnavailableError: its input cannot be read.
        """
        async with (
            translate_temporal_errors(CALL_TIMEOUT - QUERY_TIMEOUT),
            translate_not_found(task_id),
            translate_blob_errors(),
        ):
            newest = await describe(self._client, task_id)
            if newest.workflow_type != names.WORKFLOW_TYPE:
                raise TaskUnknownError(task_id)
            if not newest.is_running:
                raise NoWorkerError
            run = self._client.get_workflow_handle(task_id, run_id=newest.run_id)
            events = run.fetch_history_events(page_size=BEGINNING)
            first = await anext(events)
            started = first.workflow_execution_started_event_attributes
            (sent,) = await self._client.data_converter.decode(started.input.payloads, [TaskInput])
            task = begun(sent, task_id, first.event_time.ToDatetime(UTC))
            canceled_at = await _canceled_before_work(events)
        if task.agent.routing == "auto":
            raise NoWorkerError  # only a worker can tell whether clients have such a task
        return Beginning(submitted_view(task_id, task), newest.run_id, canceled_at)

    async def wait_for_route(self, task_id: str) -> Route | None:
        """Wait for the decision of an agent that routes messages: a task, or a direct answer.

        None if the workflow has ended without a decision, or as a failed task. Any number of callers
        may wait, at any time, for the same decision.

        Raises:
            NoWorkerError: there was no decision in time. It is still pending: try again.
            TemporalUnavailableError: Temporal does not respond.
        """
        handle = self._client.get_workflow_handle(task_id, result_type=TaskResult)
        try:
            async with asyncio.timeout(DECISION_TIMEOUT), translate_blob_errors():
                return await handle.execute_update(_UPDATE, id=_UPDATE_ID, result_type=Route)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise NoWorkerError from error
        except WorkflowUpdateFailedError:
            pass  # its run ended during the update
        except RPCError as error:
            if not (error.status is RPCStatusCode.FAILED_PRECONDITION or is_not_found(error)):
                async with translate_temporal_errors():
                    raise
        try:
            async with translate_temporal_errors(), translate_blob_errors():
                result = await handle.result()
                return Route(message=result.message, digest=result.digest)
        except WorkflowFailureError:
            return None

    async def check(self) -> None:
        """Check that Temporal responds for our namespace."""
        await namespace_id(self._client, rpc_timeout=RPC_TIMEOUT)

    def _handle(self, task_id: str) -> TaskHandle:
        return self._client.get_workflow_handle(task_id, result_type=TaskResult)


def _refusal(task_id: str, failure: ApplicationError) -> GatewayError | None:
    """Return the error for a message that a task has refused; None for any other failure."""
    match failure.type:
        case failures.INVALID_ANSWER:
            return AnswerInvalidError(failure.message)
        case failures.TASK_BUSY:
            return TaskBusyError(task_id)
        case failures.TASK_TERMINAL:
            return TaskEndedError(f"task {task_id!r} has ended and takes no more messages")
        case _:
            return None


def submitted_view(task_id: str, task: TaskInput) -> TaskView:
    """Return the view of a task that no worker has started yet."""
    return TaskView(
        task_id=task_id,
        context_id=task.context_id,
        owner=task.owner,
        agent_id=task.agent.id,
        created_at=task.created_at,
        status=TaskStatus(state=TaskState.SUBMITTED, at=task.created_at),
        history=(task.message,),
        fork=task.fork.origin if task.fork else None,
    )


def canceled_status(task_id: str, at: datetime) -> TaskStatus:
    """Return the status of a task that was canceled before any worker started it."""
    message = AgentMessage(message_id=f"{task_id}-canceled", parts=(TextPart(text=CANCELED_BEFORE_WORK),))
    return TaskStatus(state=TaskState.CANCELED, at=at, message=message)


async def _canceled_before_work(events: AsyncIterator[HistoryEvent]) -> datetime | None:
    """Return the time of the cancellation, if no worker had begun its first step by then."""
    async for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            return None
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            return event.event_time.ToDatetime(UTC)
    return None
