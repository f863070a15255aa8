"""One A2A task as one durable execution: the Temporal shell around the loop."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, is_cancelled_exception

from everloop.workflows import approvals, human_input, reporting
from everloop.workflows.conclusion import Conclusion
from everloop.workflows.contract import failures, names
from everloop.workflows.contract.calls import NarrateInput
from everloop.workflows.contract.events import REASON
from everloop.workflows.contract.messages import AgentMessage, AssistantMessage, UserMessage, text_of
from everloop.workflows.contract.parts import shorten
from everloop.workflows.contract.ports import NarratorPort
from everloop.workflows.contract.questions import (
    Answer,
    ApproveInput,
    ApproverAnswer,
    InvalidAnswerError,
    Note,
    SkippedCall,
    SubAgentQuestions,
)
from everloop.workflows.contract.tasks import (
    Route,
    TaskProgress,
    TaskRef,
    TaskResult,
    TaskState,
    TaskView,
    TranscriptPage,
    begun,
)
from everloop.workflows.loop import Loop
from everloop.workflows.scope import TaskScope, narration
from everloop.workflows.state import CarriedTask, Phase, TaskRunState
from everloop.workflows.task_limits import TaskStoppedError, final_failure, has_room, time_is_up

EXCERPT_LENGTH = 200

CANCELED = "canceled on request"


@workflow.defn(name=names.WORKFLOW_TYPE)
class AgentTask:
    """Workflow of one task, until it is answered, cancelled or failed. The workflow id is the task id.

    A task with a long history continues in a new run, with the state of the run before.
    """

    @workflow.init
    def __init__(self, task: CarriedTask) -> None:
        info = workflow.info()
        self._task = task if task.carried else begun(task, info.workflow_id, workflow.now())
        self._ref = TaskRef(
            task_id=info.workflow_id,
            run_id=info.run_id,
            context_id=self._task.context_id,
            owner=task.owner,
            agent_id=task.agent.id,
        )
        self._message: AgentMessage | None = None
        self._state = task.carried or TaskRunState.begin(
            self._task.message, self._task.created_at, workflow.now()
        )
        self._scope = TaskScope(self._ref, self._task, self._state)
        self._loop = Loop(self._scope)
        self._conclusion = Conclusion(self._ref, self._scope, self._loop)

    @workflow.run
    async def run(self, task: CarriedTask) -> TaskResult:
        reporting.name_run(self._ref, self._task.agent)
        reporting.index(self._state, self._state.status.state if task.carried else TaskState.WORKING)
        try:
            answer = await self._answer()
            if isinstance(answer, AgentMessage):
                return await self._end_at_once(answer)
        except (ActivityError, ChildWorkflowError, TaskStoppedError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                await self._conclusion.end(TaskState.CANCELED, reporting.agent_message(CANCELED), CANCELED)
                raise
            failure = final_failure(error, self._state.usage)
            last = _last_message(failure.message, failure.type or "Error")
            await self._conclusion.end(TaskState.FAILED, last, failure.message)
            raise failure from None
        if self._state.answer is None:  # the first reply of an agent that routes is the answer of a task
            self._state.hold_answer(answer)
        closing = answer.closing or ("" if answer.text else "the model gave an empty answer")
        outcome = TaskState.REJECTED if answer.rejects else TaskState.COMPLETED
        reason = self._state.last_reason if outcome is TaskState.COMPLETED else ""
        await self._conclusion.end(outcome, _last_message(closing, reason or answer.reason), closing)
        return TaskResult(
            state=outcome,
            iterations=self._state.iteration,
            usage=self._state.usage,
            excerpt=shorten(answer.text, EXCERPT_LENGTH),
            answer=answer.text if task.depth else "",
            closing=closing if task.depth else "",
            artifacts=tuple(self._state.artifact_ids) if task.depth else (),
        )

    @workflow.update
    def add_message(self, message: UserMessage) -> str:
        """Accept a message of the client: an answer goes to its question, others to the next model call.

        The first message of an id is accepted, once. Returns the digest of that message's content, so
        that the sender of another one with the same id can detect the conflict; Temporal returns the
        same result for the same update id.
        """
        state = self._state
        if stored_digest := state.digest_of(message):
            return stored_digest
        content = state.note_message(message)
        if answer := approvals.find_answer(state, message):
            state.take_answer(answer, message)
        else:
            state.inbox.append(message)
        reporting.update_details(state)
        return content

    @add_message.validator
    def validate_add_message(self, message: UserMessage) -> None:
        if self._state.digest_of(message):
            return
        if self._state.phase is Phase.DONE:
            raise ApplicationError(
                f"the task is {self._state.status.state} and takes no more messages; start a new task",
                type=failures.TASK_TERMINAL,
                non_retryable=True,
            )
        with _translate_invalid_answers():
            is_answer = approvals.find_answer(self._state, message)
        if not is_answer and not has_room(self._state, message):
            raise ApplicationError("too many unread messages", type=failures.TASK_BUSY, non_retryable=True)

    @workflow.update
    def take_approvers_answer(self, given: ApproverAnswer) -> str:
        """Accept the answer of an approver in the owner's place; return the time of the answer."""
        at, message_id = workflow.now(), str(workflow.uuid4())
        answer = approvals.approvers_answer(self._state, self._task, given)
        self._state.take_answer(answer, approvals.approval_message(message_id, given, at))
        reporting.update_details(self._state)
        return at.isoformat()

    @take_approvers_answer.validator
    def validate_take_approvers_answer(self, given: ApproverAnswer) -> None:
        with _translate_invalid_answers():
            approvals.approvers_answer(self._state, self._task, given)

    @workflow.update
    async def wait_for_route(self) -> Route:
        """Wait for the routing decision; return the message that answers instead of a task, if any."""
        await workflow.wait_condition(lambda: not self._scope.has_hidden_task)
        return Route(message=self._message, digest=self._task.digest)

    @workflow.signal(description=human_input.OPERATOR_SIGNALS["approve"])
    def approve(self, *inputs: object) -> None:
        """Answer the question of a call as an operator, with an `ApproveInput`."""
        state = self._state
        with human_input.noting(state, "approve"):
            answer = approvals.decide(
                state, human_input.read(ApproveInput, inputs, approvals.example_signal(state))
            )
            state.take_answer(answer)
            state.last_signal = f"`approve` answered `{answer.question_id}`"

    @workflow.signal(description=human_input.OPERATOR_SIGNALS["skip_call"])
    def skip_call(self, *inputs: object) -> None:
        """End a pending call as an operator, with a `SkippedCall`; the task goes on without its result."""
        state = self._state
        with human_input.noting(state, "skip_call"):
            skipped = human_input.read(SkippedCall, inputs or ({},), '{"call_id": "…", "note": "…"}')
            call = approvals.find_pending(state, skipped.call_id)
            state.skipped[call.id] = skipped.note
            state.last_signal = f"`skip_call` ends `{call.id}`, a call of `{call.name}`"

    @workflow.signal(description=human_input.OPERATOR_SIGNALS["resume"])
    def resume(self, *inputs: object) -> None:
        """Continue after a failure, when the task waits for an operator."""
        with human_input.noting(self._state, "resume"):
            if not self._state.waits_for_resume:
                raise human_input.RefusedSignalError("the task waits with no failure")
            self._state.waits_for_resume = ""
            self._state.last_signal = "`resume` let the task go on"

    @workflow.signal(description=human_input.OPERATOR_SIGNALS["note"])
    def note(self, *inputs: object) -> None:
        """Record an operator's action elsewhere in the task, with a `Note`."""
        with human_input.noting(self._state, "note"):
            noted = human_input.read(Note, inputs, '{"note": "…"}')
            self._state.last_signal = f"`note`: {shorten(noted.note, EXCERPT_LENGTH)}"

    @workflow.signal(dynamic=True, description=human_input.UNKNOWN)
    def unknown_signal(self, name: str, inputs: Sequence[RawValue]) -> None:
        """Record that there is no such signal."""
        with human_input.noting(self._state, name):
            raise human_input.unknown(name)

    @workflow.signal(name=names.SUB_AGENT_ASKS, description=human_input.INTERNAL)
    def sub_agent_asks(self, *inputs: object) -> None:
        """Replace the open questions of a call's sub-agent."""
        with human_input.noting(self._state, names.SUB_AGENT_ASKS):
            sub_agent = human_input.read(SubAgentQuestions, inputs, human_input.INTERNAL)
            for call_id, task_id in self._state.asked_agents.items():
                if task_id == sub_agent.task_id:
                    self._state.relay_questions(call_id, sub_agent.questions)

    @workflow.signal(name=names.PEOPLE_ANSWER, description=human_input.INTERNAL)
    def people_answer(self, *inputs: object) -> None:
        """Accept an answer of people to the parent task; a late one is ignored."""
        with human_input.noting(self._state, names.PEOPLE_ANSWER):
            answer = human_input.read(Answer, inputs, human_input.INTERNAL)
            if answer.question_id in {question.id for question in self._state.open_questions}:
                self._state.take_answer(answer)

    @workflow.query(description="The task as A2A clients see it.")
    def view(self) -> TaskView:
        """The complete A2A view of the task; of a long history, the newest messages."""
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
            history=reporting.recent_history(state),
            artifacts=state.artifacts,
            is_hidden=self._scope.has_hidden_task or self._message is not None,
            fork=self._task.fork.origin if self._task.fork else None,
        )

    @workflow.query(description="Internal: what was taken in under the id of a message.")
    def taken_in(self, message_id: str) -> str:
        """The digest of the accepted message with this id (`content_digest`); empty without one."""
        return self._state.digests.get(names.message_identity(message_id), "")

    @workflow.query(description="Where the loop stands: phase, iteration, tokens, open questions.")
    def progress(self) -> TaskProgress:
        """The position of the loop."""
        state = self._state
        return TaskProgress(
            phase=state.phase,
            iteration=state.iteration,
            usage=state.usage,
            transcript_length=len(state.transcript),
            pending_tools=tuple(call.name for call in state.pending),
            pending_calls=tuple(call.id for call in state.pending),
            inbox=len(state.inbox),
            questions=state.open_questions,
            waits_for_resume=state.waits_for_resume,
            last_signal=state.last_signal,
        )

    @workflow.query(description="What the model reads, from a position on (input: a number, default 0).")
    def transcript(self, start: int = 0) -> TranscriptPage:
        """All messages from position `start` on that fit; `next` is where the next page starts."""
        return reporting.transcript_page(self._state, start)

    async def _answer(self) -> AssistantMessage | AgentMessage:
        """Run the loop, within the agent's wall clock if it has one; a message answers instead of a task."""
        await self._loop.preparation.load_agent()
        self._narrate()
        try:
            async with self._scope.wall_clock:
                self._scope.set_wall_clock()
                return await self._loop.route() or await self._loop.run()
        except (ActivityError, ChildWorkflowError, TimeoutError) as error:
            if self._scope.wall_clock.expired() and workflow.cancellation_reason() is None:
                raise time_is_up(self._scope.agent) from error
            raise

    async def _end_at_once(self, message: AgentMessage) -> TaskResult:
        """Answer instead of a task: the sender gets the message."""
        self._message, self._state.is_routed = message, True
        self._state.phase = Phase.DONE
        reporting.index(self._state, TaskState.COMPLETED)
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._conclusion.follow_up(TaskState.COMPLETED, text_of(message.parts))
        return TaskResult(
            state=TaskState.COMPLETED,
            iterations=self._state.iteration,
            usage=self._state.usage,
            excerpt=shorten(text_of(message.parts), EXCERPT_LENGTH),
            message=message,
            digest=self._task.digest,
        )

    def _narrate(self) -> None:
        """Start the narrator, which ends with the task. Its end is not awaited, and its failure ignored."""
        agent = self._scope.agent
        if agent.narrator and not self._task.depth:
            call = NarrateInput(task=self._scope.ref, narrator=agent.narrator, model=agent.model)
            queue = names.task_queue_of(names.NARRATOR_QUEUE, workflow.info().task_queue)
            narrating = workflow.start_activity_method(NarratorPort.narrate, call, **narration(queue))
            narrating.add_done_callback(lambda done: done.cancelled() or done.exception())


@contextmanager
def _translate_invalid_answers() -> Generator[None]:
    try:
        yield
    except InvalidAnswerError as error:
        raise ApplicationError(str(error), type=failures.INVALID_ANSWER, non_retryable=True) from None


def _last_message(text: str, reason: str) -> AgentMessage | None:
    """Return the message of the last status, with the name of the failure if the task did not complete."""
    message = reporting.agent_message(text)
    return message and message.model_copy(update={"metadata": {REASON: reason} if reason else {}})
