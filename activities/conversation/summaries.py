"""Sums up what is too old to be recalled of a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import structlog
from temporalio.exceptions import ApplicationError

from everloop.activities.conversation.recall import (
    byte_budget,
    byte_size,
    token_budget,
)
from everloop.activities.lease import Heartbeat, heartbeating
from everloop.activities.model.compaction import write_summary
from everloop.activities.model.models import Models
from everloop.stores.conversations.fitting import Room, newest_turns, safe_ends
from everloop.stores.conversations.store import FORGOTTEN, Conversations, ConversationSummary
from everloop.workflows.contract import failures
from everloop.workflows.contract.calls import CompactConversationInput, ConversationMessage
from everloop.workflows.contract.messages import (
    SummaryMessage,
)
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.settings import Memory

# What is summed up next of a conversation, by its strategy.

FAN_IN = 4
"""So many summaries of one level become one of the next level ("hierarchical")."""

MAX_BLOCK_CHARACTERS = 60_000
"""Of the messages, as JSON, that one call of the model sums up, unless one of them alone has more."""


@dataclass(frozen=True)
class SummaryStep:
    """A summary to write: of earlier summaries, and of messages after them, up to position `end`."""

    level: int
    start: int
    end: int
    earlier: tuple[ConversationSummary, ...] = ()
    messages: tuple[ConversationMessage, ...] = ()


def next_step(
    memory: Memory,
    summaries: Sequence[ConversationSummary],
    start: int,
    messages: Sequence[ConversationMessage],
) -> SummaryStep | None:
    """Return what to sum up, None if nothing is left. `messages` are too old to be recalled, from `start` on.

    No summary covers them. Their range is cut into blocks so that no call of the model has to read too much.
    """
    if memory.strategy == "hierarchical" and (full := _full_level(summaries)):
        return SummaryStep(full[0].level + 1, full[0].start, full[-1].end, earlier=tuple(full))
    if not messages:
        return None
    if memory.strategy == "hierarchical":
        block = messages[: _block_end(messages, memory.max_messages)]
        return SummaryStep(0, start, start + len(block), messages=tuple(block))
    block = messages[: _block_end(messages, len(messages))]
    first = summaries[0].start if summaries else start
    return SummaryStep(0, first, start + len(block), tuple(summaries), tuple(block))


def _full_level(summaries: Sequence[ConversationSummary]) -> list[ConversationSummary]:
    """Return the oldest summaries in a row that are to become one; none if there are not enough."""
    for _, group in groupby(summaries, key=lambda summary: summary.level):
        if len(row := list(group)) >= FAN_IN:
            return row[:FAN_IN]
    return []


def _block_end(messages: Sequence[ConversationMessage], most: int) -> int:
    """Return how many messages one summary takes: those that fit, or else the fewest that belong together."""
    ends = [end for end in safe_ends(messages) if end]
    sizes = list(accumulate(len(message.model_dump_json()) for message in messages))
    fitting = [end for end in ends if end <= most and sizes[end - 1] <= MAX_BLOCK_CHARACTERS]
    return max(fitting, default=ends[0])


MAX_SUMMARY_CHARACTERS = 8_000
"""How much of a summary is kept: a model may write more than the 500 words that it is asked for."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Conversation:
    """Its summaries, and the messages from position `start` on, which none of them covers."""

    summaries: Sequence[ConversationSummary]
    start: int
    messages: Sequence[ConversationMessage]


class ConversationCompactor:
    """Writes summaries one by one. Dying anywhere costs at most the one that is being written.

    The messages stay where they are, so that a failure loses nothing.
    """

    def __init__(self, conversations: Conversations, models: Models) -> None:
        self._conversations = conversations
        self._models = models

    async def is_long(self, context: str, memory: Memory) -> bool:
        """Whether the model is to sum up a part of the conversation."""
        if memory.strategy == "window" or not memory.auto_compact:
            return False
        return bool(self._too_old(memory, await self._read(context)))

    async def compact(self, call: CompactConversationInput) -> None:
        """Do what `ContextPort.compact_conversation` says."""
        if call.memory.strategy == "window":
            return
        context, last = context_key(call.task.owner, call.task.context_id), None
        async with heartbeating() as heartbeat:
            forgotten = await self._conversations.times_forgotten(context)
            # The same step again means that its summary came too late: another task is at it.
            while (step := await self._next_step(context, call.memory)) and step != last:
                summary = await self._write(call, step, heartbeat)
                await self._conversations.compact(context, summary, forgotten)
                last, forgotten = step, await self._conversations.times_forgotten(context)

    async def _next_step(self, context: str, memory: Memory) -> SummaryStep | None:
        found = await self._read(context)
        return next_step(memory, found.summaries, found.start, self._too_old(memory, found))

    async def _read(self, context: str) -> _Conversation:
        summaries = await self._conversations.get_summaries(context)
        span = await self._conversations.get_span(context)
        start = max([span.start, *(summary.end for summary in summaries)])
        messages = await self._conversations.get_range(context, start, span.stop)
        return _Conversation(summaries, span.stop - len(messages), messages)

    def _too_old(self, memory: Memory, found: _Conversation) -> Sequence[ConversationMessage]:
        """Return what is to be summed up: nothing while all is recalled, then all but half of that.

        Summing up only what is recalled no more would take a model call after each task.
        """
        rooms = [
            Room(memory.max_messages, token_budget(memory), self._conversations.count_tokens),
            Room(memory.max_messages, byte_budget(found.summaries), byte_size),
        ]
        if all(room.holds(found.messages) for room in rooms):
            return ()
        return found.messages[: max(newest_turns(found.messages, room.half) for room in rooms)]

    async def _write(
        self, call: CompactConversationInput, step: SummaryStep, heartbeat: Heartbeat
    ) -> ConversationSummary:
        earlier = "\n\n".join(summary.text for summary in step.earlier)
        said = [message for message in step.messages if message != FORGOTTEN]
        if not said and len(step.earlier) <= 1:  # all of it was deleted
            return ConversationSummary(
                level=step.level, start=step.start, end=step.end, text=earlier or "(deleted)"
            )
        notes = [SummaryMessage(end=1, text=earlier), *said]
        model = self._models.choose(call.model, call.task.agent_id).name
        text, usage = await write_summary(self._models, call.task, model, notes, len(notes), heartbeat)
        if not text:
            raise ApplicationError(
                f"model {model!r} wrote no summary of the conversation; it is asked again later",
                type=failures.MODEL_REFUSED,
                non_retryable=True,
            )
        _log.info(
            "conversation summed up",
            summary_level=step.level,
            start=step.start,
            end=step.end,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
        )
        return ConversationSummary(
            level=step.level, start=step.start, end=step.end, text=text[:MAX_SUMMARY_CHARACTERS]
        )
