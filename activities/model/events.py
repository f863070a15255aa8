"""What a model call publishes besides its deltas."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from everloop.activities.model.drafts import ResponseDraft, attempt_number
from everloop.activities.model.plugins import answer_part
from everloop.activities.model.reply import Delta, ThoughtDelta, text_of_deltas
from everloop.activities.model.streaming import thought
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import (
    ArtifactChunk,
    ContentCompleted,
    IterationStarted,
    Resumed,
    RetryScheduled,
    StatusChanged,
    TaskEvent,
    ToolCalled,
    UsageReported,
    Warned,
)
from everloop.workflows.contract.messages import AgentMessage, AssistantMessage, TextPart, TranscriptMessage
from everloop.workflows.contract.tasks import TaskState


def opening_events(call: CallModelInput, attempt: int, model: str) -> list[TaskEvent]:
    """Return what is published before the provider is asked."""
    events: list[TaskEvent] = list(statuses_of(call))
    if attempt > 1:
        events.append(Resumed(after="attempt", attempt=attempt))
    if call.warning:  # each attempt says so: nobody knows whether the one before came to it
        events.append(Warned(text=call.warning))
    return [*events, IterationStarted(iteration=call.iteration, model=model)]


def statuses_of(call: CallModelInput) -> list[StatusChanged]:
    """Return the statuses that the call carries, with the content of messages that it sends as new."""
    new = {message.message_id: message for message in call.new}
    return [
        status.model_copy(
            update={"received": tuple(m if m.parts else new.get(m.message_id, m) for m in status.received)}
        )
        for status in call.statuses
    ]


def retry_events(call: CallModelInput, attempt: int, failure: ApplicationError) -> list[TaskEvent]:
    """Return what is published when an attempt failed and another follows."""
    delay = failure.next_retry_delay.total_seconds() if failure.next_retry_delay else None
    when = "retry soon" if delay is None else f"retry in {delay:.0f} s" if delay >= 1 else "retry at once"
    number = attempt_number(call.tries, attempt)
    message = AgentMessage(
        message_id=f"{call.task.task_id}-retry-{call.length}-{number}",
        parts=(TextPart(text=f"waiting for the model: {failure.message}; {when}"),),
    )
    return [
        RetryScheduled(attempt=attempt, reason=failure.message, delay=delay),
        _status(call, 2 * number, message),
    ]


def recovery_events(call: CallModelInput, attempt: int) -> list[TaskEvent]:
    """Return what takes the note of the attempt before out of the status; nothing at the very first."""
    number = attempt_number(call.tries, attempt)
    return [] if number == 1 else [_status(call, 2 * number - 1, None)]


def closing_events(
    iteration: int, reply: AssistantMessage, chunks: Iterable[ArtifactChunk]
) -> list[TaskEvent]:
    """Return what is published with the last chunks of a reply."""
    whole = ContentCompleted(iteration=iteration, finish_reason=reply.finish_reason, model=reply.model)
    usage = UsageReported(iteration=iteration, usage=reply.usage)
    return [*chunks, whole, usage, *_tool_calls(iteration, reply)]


def _tool_calls(iteration: int, reply: AssistantMessage) -> Iterable[ToolCalled]:
    for call in reply.tool_calls:
        yield ToolCalled(iteration=iteration, call_id=call.id, name=call.name, arguments=call.arguments)


def _status(call: CallModelInput, step: int, message: AgentMessage | None) -> StatusChanged:
    return StatusChanged(
        version=call.version, step=step, state=TaskState.WORKING, at=datetime.now(UTC), message=message
    )


# What a model call publishes at its end, and what it takes back.


def end_of_streamed(
    call: CallModelInput, reply: AssistantMessage, rest: Sequence[Delta], draft: ResponseDraft | None
) -> list[TaskEvent]:
    """Return the end of a reply whose text this attempt has streamed; one before tool calls is no answer."""
    chunks = draft.finish(text_of_deltas(rest)) if draft and not reply.tool_calls else withdrawal(draft)
    return [*_thoughts(call, rest), *closing_events(call.iteration, reply, chunks)]


def end_of_whole(
    call: CallModelInput,
    reply: AssistantMessage,
    draft: ResponseDraft | None,
    *,
    is_data: bool,
    rest: Sequence[Delta] = (),
) -> list[TaskEvent]:
    """Return the end of a reply whose text subscribers do not have: it is data, or was changed."""
    if draft and not reply.tool_calls and not reply.refused:
        chunks = [draft.complete(answer_part(reply.text, is_data=is_data))]
    else:
        chunks = withdrawal(draft)
    return [*_thoughts(call, rest), *closing_events(call.iteration, reply, chunks)]


def withdrawal(draft: ResponseDraft | None) -> list[ArtifactChunk]:
    """Return what takes a draft back that subscribers may see."""
    return [draft.withdraw()] if draft and draft.is_published else []


def was_answer(message: TranscriptMessage) -> bool:
    """Whether a message stood in the view as a whole answer, which a later reply overtakes."""
    return isinstance(message, AssistantMessage) and not message.tool_calls and not message.refused


def _thoughts(call: CallModelInput, rest: Sequence[Delta]) -> list[TaskEvent]:
    return [thought(delta, call.iteration) for delta in rest if isinstance(delta, ThoughtDelta)]
