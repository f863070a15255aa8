"""Events of a model call: the model's output while it is written, and the events before and after it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Self

import structlog
from redis.exceptions import RedisError
from temporalio.exceptions import ApplicationError

from everloop.activities.batcher import Batcher
from everloop.activities.model.artifact_streams import ArtifactStreams
from everloop.activities.model.drafts import ResponseDraft, attempt_number
from everloop.activities.model.reply import ArgumentsDelta, VisibleDelta, coalesce, text_of_deltas
from everloop.models.interface import ProviderToolDelta, TextDelta, ThoughtDelta
from everloop.workflows.contract.calls import CallModelInput
from everloop.workflows.contract.events import (
    ArtifactChunk,
    ContentCompleted,
    IterationStarted,
    ProviderToolRan,
    Resumed,
    RetryScheduled,
    StatusChanged,
    TaskEvent,
    Thought,
    ToolCalled,
    UsageReported,
    Warned,
)
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    TextPart,
    TranscriptMessage,
    answer_part,
)
from everloop.workflows.contract.tasks import TaskState

DROPPED = "the model wants more back with its reply than is kept; it may answer worse, or refuse"

_log = structlog.get_logger()


def opening_events(call: CallModelInput, attempt: int, model: str) -> list[TaskEvent]:
    """Return the events to publish before the request to the provider."""
    events: list[TaskEvent] = list(statuses_of(call))
    if attempt > 1:
        events.append(Resumed(after="attempt", attempt=attempt))
    if call.warning:  # in each attempt: the one before may have ended before this
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
    """Return the events after a failed attempt that another one follows."""
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
    """Return the events that remove the note of the attempt before from the status. The first has none."""
    number = attempt_number(call.tries, attempt)
    return [] if number == 1 else [_status(call, 2 * number - 1, None)]


def _status(call: CallModelInput, step: int, message: AgentMessage | None) -> StatusChanged:
    return StatusChanged(
        version=call.version, step=step, state=TaskState.WORKING, at=datetime.now(UTC), message=message
    )


def last_events(  # noqa: PLR0913 -- the end of a reply, and its published part
    call: CallModelInput,
    reply: AssistantMessage,
    draft: ResponseDraft | None,
    *,
    rest: Sequence[VisibleDelta] = (),
    is_streamed: bool = False,
    is_data: bool = False,
) -> list[TaskEvent]:
    """Return the events at the end of a reply.

    A reply with tool calls, a refused one, and one that fails the task are not answers.

    `rest` is the streamed output that is not published yet. `is_streamed`: the answer is the streamed text.
    If not, subscribers get it in full, as data if `is_data`.
    """
    if draft is None or reply.tool_calls or reply.refused or reply.fails or not (reply.text or is_streamed):
        chunks = withdrawal(draft)
    elif is_streamed:
        chunks = draft.finish(text_of_deltas(rest))
    else:
        chunks = [draft.complete(answer_part(reply.text, is_data=is_data))]
    iteration = call.iteration
    is_repeated = reply.refused and reply.reason  # because of the end of this reply
    return [
        *(beside(delta, iteration) for delta in rest if isinstance(delta, Beside)),
        *chunks,
        ContentCompleted(iteration=iteration, finish_reason=reply.ended_with, model=reply.answered_by),
        UsageReported(iteration=iteration, usage=reply.usage),
        *([Warned(text=f"the model is asked again: {reply.refused}")] if is_repeated else []),
        *(
            ToolCalled(iteration=iteration, call_id=call.id, name=call.name, arguments=call.arguments)
            for call in reply.tool_calls
        ),
    ]


def withdrawal(draft: ResponseDraft | None) -> list[ArtifactChunk]:
    """Return the chunk that withdraws a draft that subscribers may have."""
    return [draft.withdraw()] if draft and draft.is_published else []


def was_answer(message: TranscriptMessage) -> bool:
    """True if the view showed a message as a complete answer, which a later reply replaces."""
    return isinstance(message, AssistantMessage) and not message.tool_calls and not message.refused


# Publishes the model's output while it is written.

INTERVAL = 0.020
"""Seconds between publishes; deltas in between are combined. Below 25 ms, so that 40 tokens a second, the
pace of many models, are not delayed by their own jitter (15 ms of median latency, measured)."""

PAUSES = (0.25, 1.0, 5.0, 10.0)
"""Seconds until the next publish after 1, 2, … failures in a row."""

Publish = Callable[[Sequence[TaskEvent]], Awaitable[object]]


class DeltaPublisher:
    """Publishes the first delta at once and later ones every 20 ms, beside the reading of the stream.

    Deltas are best effort: a failed publish causes a pause and a new draft, never an error. Without a `draft`
    the answer is not published.
    """

    def __init__(
        self, publish: Publish, draft: ResponseDraft | None, artifacts: ArtifactStreams, iteration: int
    ) -> None:
        self._publish = publish
        self._draft = draft
        self._artifacts = artifacts
        self._iteration = iteration
        self._pending: list[VisibleDelta] = []
        self._failures = 0
        self._batcher = Batcher(self._flush)

    async def __aenter__(self) -> Self:
        await self._batcher.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._batcher.__aexit__(kind, error, trace)

    def add(self, deltas: Iterable[VisibleDelta]) -> None:
        """Add deltas to the next publish."""
        self._pending.extend(deltas)
        if self._pending:
            self._batcher.add()

    async def stop(self) -> list[VisibleDelta]:
        """Stop publishing and return the unpublished deltas. A publish in progress may end first."""
        await self._batcher.stop()
        return self._take()

    async def _flush(self) -> float:
        deltas = self._take()
        try:
            events = [event for delta in deltas if (event := self._event(delta))]
            if events := [*events, *await self._artifacts.chunks()]:
                await self._publish(events)
        except (RedisError, OSError) as error:
            self._keep(deltas, error)
            return PAUSES[min(self._failures, len(PAUSES)) - 1]
        self._failures = 0
        return INTERVAL

    def _take(self) -> list[VisibleDelta]:
        taken, self._pending = coalesce(self._pending), []
        return taken

    def _event(self, delta: VisibleDelta) -> TaskEvent | None:
        match delta:
            case TextDelta():
                return self._draft.append(delta.text) if self._draft else None
            case ThoughtDelta() | ProviderToolDelta():
                return beside(delta, self._iteration)
            case ArgumentsDelta():
                self._artifacts.add(delta)
                return None

    def _keep(self, deltas: list[VisibleDelta], error: Exception) -> None:
        """Keep the deltas beside the answer for the next publish; the drafts keep the rest."""
        if not self._failures:
            _log.warning("deltas not published", error_type=type(error).__name__)
        self._failures += 1
        self._pending = [delta for delta in deltas if isinstance(delta, Beside)] + self._pending
        if self._draft:
            self._draft.restart()
        self._artifacts.restart()


Beside = ThoughtDelta | ProviderToolDelta
"""Deltas that subscribers get beside the answer."""


def beside(delta: Beside, iteration: int) -> Thought | ProviderToolRan:
    """Return the event of a delta beside the answer."""
    if isinstance(delta, ThoughtDelta):
        return Thought(iteration=iteration, thought_id=delta.thought_id, text=delta.text, last=delta.last)
    return ProviderToolRan(
        iteration=iteration, id=delta.id, name=delta.name, status=delta.status, detail=delta.detail
    )
