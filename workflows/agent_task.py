"""One A2A task as one durable execution: the Temporal shell around the loop."""

import asyncio
import contextlib

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows import display
    from workflows.activity_options import PUBLISH
    from workflows.contract import failures, names
    from workflows.contract.calls import PublishInput
    from workflows.contract.events import FINAL_ATTEMPT, RESPONSE_ARTIFACT, ArtifactChunk, StatusChanged
    from workflows.contract.messages import TextPart, UserMessage
    from workflows.contract.ports import PublishPort
    from workflows.contract.tasks import (
        TaskInput,
        TaskProgress,
        TaskRef,
        TaskResult,
        TaskState,
        TaskView,
    )
    from workflows.limits import LimitReachedError
    from workflows.loop import Loop, remark_message
    from workflows.state import Phase, TaskRunState

EXCERPT_LENGTH = 200


@workflow.defn(name="AgentTask")
class AgentTask:
    """Works on one task until it is answered, cancelled or failed. The workflow id is the task id."""

    @workflow.init
    def __init__(self, task: TaskInput) -> None:
        info = workflow.info()
        self._task = task
        self._ref = TaskRef(
            task_id=info.workflow_id,
            run_id=info.run_id,
            context_id=task.context_id,
            owner=task.owner,
            agent_id=task.agent.id,
        )
        self._state = TaskRunState.begin(task.message, task.created_at)

    @workflow.run
    async def run(self, task: TaskInput) -> TaskResult:
        self._index(TaskState.WORKING)
        try:
            answer = await Loop(self._ref, task.agent, self._state).run()
        except (ActivityError, LimitReachedError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                await self._end(TaskState.CANCELED, "canceled on request")
                raise
            failure = _failure(error)
            await self._end(TaskState.FAILED, failure.message)
            raise failure from None
        self._state.answer = answer
        await self._end(TaskState.COMPLETED, "" if answer.text else "the model gave an empty answer")
        return TaskResult(
            state=TaskState.COMPLETED,
            iterations=self._state.iteration,
            usage=self._state.usage,
            excerpt=display.shorten(answer.text, EXCERPT_LENGTH),
        )

    @workflow.update
    def add_message(self, message: UserMessage) -> None:
        """Put a message of the client into the inbox; the next model call sees it.

        The update id is the messageId, so that a repeated message is added once.
        """
        self._state.inbox.append(message)
        workflow.set_current_details(display.details(self._state))

    @add_message.validator
    def validate_add_message(self, message: UserMessage) -> None:
        if self._state.phase is Phase.DONE:
            raise ApplicationError(
                f"the task is {self._state.status.state} and takes no more messages; start a new task",
                type=failures.TASK_TERMINAL,
                non_retryable=True,
            )

    @workflow.query
    def view(self) -> TaskView:
        """The whole A2A-facing task; of a long history, the newest messages."""
        state = self._state
        return TaskView(
            task_id=self._ref.task_id,
            context_id=self._ref.context_id,
            owner=self._ref.owner,
            agent_id=self._ref.agent_id,
            created_at=self._task.created_at,
            run_id=self._ref.run_id,
            version=state.version,
            status=state.status,
            history=state.recent_history,
            artifacts=state.artifacts,
        )

    @workflow.query
    def progress(self) -> TaskProgress:
        """Where the loop stands."""
        state = self._state
        return TaskProgress(
            phase=state.phase,
            iteration=state.iteration,
            usage=state.usage,
            transcript_length=len(state.transcript),
            pending_tools=tuple(call.name for call in state.pending),
            inbox=len(state.inbox),
        )

    async def _end(self, outcome: TaskState, text: str) -> None:
        """Refuse further messages, then publish what is left to say and the last status.

        From here on the outcome stands: a cancellation that comes now is too late.
        """
        self._state.phase = Phase.DONE
        events = self._last_events(outcome, text)
        workflow.set_current_details(display.details(self._state))
        # Not a local activity: that runs before anything is durable, so that after a crash, or with a
        # message that came meanwhile, the task could end in another way than clients were told.
        publishing = workflow.start_activity_method(
            PublishPort.publish, PublishInput(task=self._ref, events=events), **PUBLISH
        )
        while not publishing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(publishing)
        self._index(outcome)
        await workflow.wait_condition(workflow.all_handlers_finished)

    def _last_events(self, outcome: TaskState, text: str) -> tuple[StatusChanged | ArtifactChunk, ...]:
        """Return the answer, unless subscribers have it, what both sides said last, and the end."""
        state, at = self._state, workflow.now()
        events: list[StatusChanged | ArtifactChunk] = []
        if state.answer and not state.answer.is_shown:
            events.append(_whole_response(state.answer.text, position=len(state.transcript) - 1))
        if state.unconfirmed:
            events.append(state.unconfirmed)
        if state.remark:
            remark = remark_message(state.remark)
            events.append(state.change_status(TaskState.WORKING, at, message=remark))
        received = state.take_inbox()
        events.append(state.change_status(outcome, at, message=remark_message(text), received=received))
        return tuple(events)

    def _index(self, state: TaskState) -> None:
        workflow.upsert_search_attributes([names.TASK_STATE.value_set(state)])


def _whole_response(text: str, *, position: int) -> ArtifactChunk:
    """Return the answer in one piece; a view that has it complete drops this."""
    return ArtifactChunk(
        artifact_id=RESPONSE_ARTIFACT,
        name=RESPONSE_ARTIFACT,
        position=position,
        attempt=FINAL_ATTEMPT,
        index=0,
        part=TextPart(text=text),
        last_chunk=True,
    )


def _failure(error: BaseException) -> ApplicationError:
    """Return the named failure that ends the workflow; its message is what the client reads."""
    if isinstance(error, LimitReachedError):
        return ApplicationError(str(error), type=error.type, non_retryable=True)
    if isinstance(error, ActivityError) and isinstance(error.cause, ApplicationError):
        return ApplicationError(error.cause.message, type=error.cause.type, non_retryable=True)
    cause = error.__cause__ or error
    return ApplicationError(f"{type(cause).__name__}: {cause}", non_retryable=True)
