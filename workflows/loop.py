"""The loop of a task: ask the model, run the tools it asks for, fold the results in, again."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from workflows import display
from workflows.activity_options import model_call, store_transcript, tool_call
from workflows.contract import failures
from workflows.contract.calls import CallModelInput, RunToolInput, StoreTranscriptInput
from workflows.contract.events import StatusChanged
from workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    UserMessage,
)
from workflows.contract.ports import ModelPort, ToolPort, TranscriptPort
from workflows.contract.tasks import AgentSpec, TaskRef, TaskState, ToolSpec
from workflows.limits import check_limits
from workflows.state import Phase, TaskRunState

RESEND_CHUNK_BYTES = 900_000
"""A chunk of the transcript that is sent again; a payload may have 2 MB."""

MAX_RESENDS = 5
"""How often in a row the transcript may get lost before the task gives up on the cache."""


class Loop:
    """Runs a task until the model answers and nobody has said anything meanwhile."""

    def __init__(self, task: TaskRef, agent: AgentSpec, state: TaskRunState) -> None:
        self._task = task
        self._agent = agent
        self._state = state
        self._slots = asyncio.Semaphore(agent.max_parallel_tools)

    async def run(self) -> AssistantMessage:
        """Return the answer.

        Raises:
            LimitReachedError: a limit of the agent was reached.
            ActivityError: the model refused, or the task was cancelled.
        """
        while True:
            check_limits(self._agent, iteration=self._state.iteration)
            reply = await self._ask_model()
            if reply.tool_calls:
                await self._run_tools(reply)
            elif not self._state.inbox:
                self._state.remark = ""
                return reply

    async def _ask_model(self) -> AssistantMessage:
        """Ask for the next reply; an answer that a newer message of the client overtook becomes a remark."""
        state = self._state
        state.iteration += 1
        self._enter(Phase.MODEL)
        received = state.take_inbox()
        reply = await self._call_model(self._say(received))
        state.fold_reply(reply)
        _stop_if_cancelled()
        return reply

    async def _call_model(self, status: StatusChanged | None) -> AssistantMessage:
        resends = 0
        while True:
            try:
                return await workflow.execute_activity_method(
                    ModelPort.call_model,
                    self._model_input(status),
                    **model_call(display.model_summary(self._state)),
                )
            except ActivityError as error:
                resends += 1
                if failure_type(error) != failures.TRANSCRIPT_MISSING or resends > MAX_RESENDS:
                    raise
                await self._resend_transcript()

    def _model_input(self, status: StatusChanged | None) -> CallModelInput:
        state = self._state
        return CallModelInput(
            task=self._task,
            iteration=state.iteration,
            model=self._agent.model,
            length=len(state.transcript),
            new=state.new_messages,
            version=state.version,
            status=status and _without(state.new_messages, status),
        )

    async def _resend_transcript(self) -> None:
        """Fill the cache again; each message of the transcript enters history once more."""
        start = 0
        for messages in chunked(self._state.transcript):
            await workflow.execute_activity_method(
                TranscriptPort.store_transcript,
                StoreTranscriptInput(task=self._task, start=start, messages=messages),
                **store_transcript(f"transcript {start}-{start + len(messages) - 1} sent again"),
            )
            start += len(messages)
        self._state.cached = start

    async def _run_tools(self, reply: AssistantMessage) -> None:
        """Run the calls of a reply side by side; the first one carries what the model said with them."""
        state = self._state
        self._enter(Phase.TOOLS)
        status = self._say()
        first = len(state.transcript)
        # Every call has ended when this returns or raises, also after a cancellation.
        outcomes = await asyncio.gather(
            *(
                self._run_tool(call, first + i, status if i == 0 else None)
                for i, call in enumerate(reply.tool_calls)
            ),
            return_exceptions=True,
        )
        state.fold_tool_results([_result(outcome) for outcome in outcomes])
        _stop_if_cancelled()

    async def _run_tool(self, call: ToolCall, position: int, status: StatusChanged | None) -> ToolMessage:
        spec = self._agent.tools.get(call.name, ToolSpec())
        async with self._slots:
            result = await workflow.execute_activity_method(
                ToolPort.run_tool,
                RunToolInput(
                    task=self._task,
                    call=call,
                    position=position,
                    timeout=spec.timeout,
                    status=status,
                ),
                **tool_call(spec.timeout, display.tool_summary(call)),
            )
        self._state.pending.remove(call)
        self._show()
        return result

    def _say(self, received: tuple[UserMessage, ...] = ()) -> StatusChanged | None:
        """Return the status that carries the remark and takes in what the client said; None for neither."""
        state = self._state
        if not state.remark and not received:
            return None
        message = remark_message(state.remark)
        state.remark = ""
        at = workflow.now()
        state.unconfirmed = state.change_status(TaskState.WORKING, at, message=message, received=received)
        return state.unconfirmed

    def _enter(self, phase: Phase) -> None:
        self._state.phase = phase
        self._show()

    def _show(self) -> None:
        workflow.set_current_details(display.details(self._state))


def remark_message(text: str) -> AgentMessage | None:
    """Return a message of the agent, with an id of its own; None for no text."""
    return AgentMessage(message_id=str(workflow.uuid4()), parts=(TextPart(text=text),)) if text else None


def _stop_if_cancelled() -> None:
    """A call that ended although it was cancelled hides the cancellation; it still ends the task.

    Raises:
        CancelledError: somebody cancelled the task.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


def _without(sent: tuple[UserMessage, ...], status: StatusChanged) -> StatusChanged:
    """Leave out of a status the messages that the same call sends as new; the activity puts them back."""
    received = tuple(message for message in status.received if message not in sent)
    return status.model_copy(update={"received": received})


def _result(outcome: ToolMessage | BaseException) -> ToolMessage:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def failure_type(error: ActivityError) -> str | None:
    """Return the name of the failure (`workflows.contract.failures`) that ended an activity."""
    return error.cause.type if isinstance(error.cause, ApplicationError) else None


def chunked(messages: list[TranscriptMessage]) -> list[tuple[TranscriptMessage, ...]]:
    """Cut a transcript into chunks under `RESEND_CHUNK_BYTES`; a larger message is a chunk of its own."""
    chunks: list[list[TranscriptMessage]] = []
    room = 0
    for message in messages:
        size = len(message.model_dump_json().encode())
        if size > room or not chunks:
            chunks.append([])
            room = RESEND_CHUNK_BYTES
        chunks[-1].append(message)
        room -= size
    return [tuple(chunk) for chunk in chunks]
