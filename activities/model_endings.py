"""What a model call publishes at its end, and what it takes back."""

from collections.abc import Sequence

from everloop.activities.delta_publisher import thought
from everloop.activities.deltas import Delta, ThoughtDelta, text_of_deltas
from everloop.activities.model_events import closing_events
from everloop.activities.response_draft import ResponseDraft
from everloop.activities.structured_output import answer_part
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import ArtifactChunk, TaskEvent
from everloop.workflows.contract.messages import AssistantMessage, TranscriptMessage


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
    return [draft.withdraw()] if draft and draft.is_shown else []


def was_answer(message: TranscriptMessage) -> bool:
    """Whether a message stood in the view as a whole answer, which a later reply overtakes."""
    return isinstance(message, AssistantMessage) and not message.tool_calls and not message.refused


def _thoughts(call: CallModelInput, rest: Sequence[Delta]) -> list[TaskEvent]:
    return [thought(delta, call.iteration) for delta in rest if isinstance(delta, ThoughtDelta)]
