"""Stores the conversation of a context, and summarizes messages that are too old to be recalled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everloop.activities.cached_transcripts import checked_transcript
from everloop.activities.conversation.recall import (
    byte_budget,
    byte_size,
    recalled,
    remembered,
    token_budget,
    with_lines_for_files,
)
from everloop.activities.lease import ActivityHeartbeat, begin_attempt, heartbeating
from everloop.activities.model.compaction import write_summary
from everloop.activities.model.models import Models
from everloop.stores.conversations.conversation_store import FORGOTTEN, Conversations, ConversationSummary
from everloop.stores.conversations.memory_selection import (
    PromptBudget,
    newest_messages,
    newest_turns,
    safe_ends,
)
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import Memory
from everloop.workflows.contract.calls import (
    CompactConversationInput,
    ConversationMessage,
    LoadContextInput,
    LoadContextResult,
    SaveContextInput,
    SaveContextResult,
)
from everloop.workflows.contract.messages import SummaryMessage
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.ports import ContextPort

# The next block of a conversation to summarize.

MAX_BLOCK_CHARACTERS = 60_000
"""Limit of the messages, as JSON, that one call of the model summarizes. A longer message is alone."""


@dataclass(frozen=True)
class SummaryStep:
    """A summary to write: of the earlier one, and of messages after it, up to position `end`."""

    start: int
    end: int
    earlier: str
    messages: Sequence[ConversationMessage]


def next_step(
    summaries: Sequence[ConversationSummary], start: int, messages: Sequence[ConversationMessage]
) -> SummaryStep | None:
    """Return the next block to summarize, or None if nothing is left.

    `messages` are too old to be recalled, begin at `start`, and are not in a summary. They are cut into
    blocks to limit the input of a call.
    """
    if not messages:
        return None
    block = messages[: _block_end(messages)]
    first = summaries[0].start if summaries else start
    earlier = "\n\n".join(summary.text for summary in summaries)
    return SummaryStep(first, start + len(block), earlier, block)


def _block_end(messages: Sequence[ConversationMessage]) -> int:
    """Return the length of the next block: the messages that fit, at least the first inseparable group."""
    ends = [end for end in safe_ends(messages) if end]
    sizes = list(accumulate(len(message.model_dump_json()) for message in messages))
    return max((end for end in ends if sizes[end - 1] <= MAX_BLOCK_CHARACTERS), default=ends[0])


MAX_SUMMARY_CHARACTERS = 8_000
"""Limit of a stored summary. The prompt asks for 500 words, but a model may write more."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Conversation:
    """Summaries of a conversation, and the messages from position `start` on, which they do not cover."""

    summaries: Sequence[ConversationSummary]
    start: int
    messages: Sequence[ConversationMessage]


@dataclass(eq=False)
class RememberedConversation(ContextPort):
    """Reads and writes the conversation of a task's context, which belongs to its owner.

    Summaries are written one by one. A crash costs at most the one in progress. The messages stay stored, so
    a failure loses nothing.
    """

    conversations: Conversations
    transcripts: Transcripts
    models: Models
    leases: ToolRecords

    @activity.defn
    async def load_context(self, call: LoadContextInput) -> LoadContextResult:
        context, memory = context_key(call.task.owner, call.task.context_id), call.memory
        lease = await begin_attempt(self.leases, call.task.task_id, f"context {call.task.run_id}")
        recent = await self._recent(context, memory)
        summaries = () if memory.strategy == "window" else await self.conversations.get_summaries(context)
        end = (await self.conversations.get_span(context)).stop if summaries else 0
        messages = recalled(summaries, recent, end)
        # Also without messages: an earlier attempt may have stored some that were deleted since.
        await self.transcripts.put(call.task.task_id, call.task.run_id, 0, messages, lease)
        return LoadContextResult(messages=tuple(messages))

    @activity.defn
    async def save_context(self, call: SaveContextInput) -> SaveContextResult | None:
        context, memory = context_key(call.task.owner, call.task.context_id), call.memory
        opened = await self.transcripts.open(call.task.task_id, call.task.run_id, call.length)
        messages = remembered(checked_transcript(opened, call.length, call.digest)[call.first :])
        await self.conversations.append(context, call.task.task_id, messages)
        if memory.strategy == "window" or not memory.auto_compact:
            return SaveContextResult(is_long=False)
        return SaveContextResult(is_long=bool(self._too_old(memory, await self._read(context))))

    @activity.defn
    async def compact_conversation(self, call: CompactConversationInput) -> None:
        if call.memory.strategy == "window":
            return
        context, last = context_key(call.task.owner, call.task.context_id), None
        async with heartbeating() as heartbeat:
            forgotten = await self.conversations.times_forgotten(context)
            # The same step again: its summary came too late, because another task writes it.
            while (step := await self._next_step(context, call.memory)) and step != last:
                summary = await self._write(call, step, heartbeat)
                await self.conversations.compact(context, summary, forgotten)
                last, forgotten = step, await self.conversations.times_forgotten(context)

    async def _recent(self, context: str, memory: Memory) -> Sequence[ConversationMessage]:
        """Return the newest messages that fit. If the last message does not, without its files."""
        count, tokens = memory.max_messages, token_budget(memory)
        if recent := await self.conversations.get_recent(context, count, tokens):
            return recent
        messages = with_lines_for_files(await self.conversations.get_recent(context, count))
        return newest_messages(
            messages, PromptBudget.of_tokens(count, tokens, self.conversations.count_tokens)
        )

    async def _next_step(self, context: str, memory: Memory) -> SummaryStep | None:
        found = await self._read(context)
        return next_step(found.summaries, found.start, self._too_old(memory, found))

    async def _read(self, context: str) -> _Conversation:
        summaries = await self.conversations.get_summaries(context)
        span = await self.conversations.get_span(context)
        start = max([span.start, *(summary.end for summary in summaries)])
        messages = await self.conversations.get_range(context, start, span.stop)
        return _Conversation(summaries, span.stop - len(messages), messages)

    def _too_old(self, memory: Memory, found: _Conversation) -> Sequence[ConversationMessage]:
        """Return the messages to summarize: none while all are recalled, else all but half of the budget.

        A summary of only the messages beyond the budget would cost a model call after each task.
        """
        budgets = [
            PromptBudget(memory.max_messages, token_budget(memory), self.conversations.count_tokens),
            PromptBudget(memory.max_messages, byte_budget(found.summaries), byte_size),
        ]
        if all(budget.holds(found.messages) for budget in budgets):
            return ()
        return found.messages[: max(newest_turns(found.messages, budget.half) for budget in budgets)]

    async def _write(
        self, call: CompactConversationInput, step: SummaryStep, heartbeat: ActivityHeartbeat
    ) -> ConversationSummary:
        said = [message for message in step.messages if message != FORGOTTEN]
        written = partial(ConversationSummary, start=step.start, end=step.end)
        if not said:  # all of it was deleted
            return written(text=step.earlier or "(deleted)")
        notes = [SummaryMessage(end=1, text=step.earlier), *said]
        model = self.models.choose(call.model, call.task.agent_id).name
        text, usage = await write_summary(self.models, call.task, model, notes, len(notes), heartbeat)
        if not text:
            raise ApplicationError(
                f"model {model!r} wrote no summary of the conversation; it is asked again later",
                type=failures.MODEL_REFUSED,
                non_retryable=True,
            )
        _log.info(
            "conversation summed up",
            start=step.start,
            end=step.end,
            **usage.model_dump(include={"input_tokens", "output_tokens", "cost"}),
        )
        return written(text=text[:MAX_SUMMARY_CHARACTERS])
