"""Remembers the conversation of a context."""

from collections.abc import Sequence

from temporalio import activity

from everloop.activities.conversation.recall import recalled, remembered, token_budget, with_lines_for_files
from everloop.activities.conversation.summaries import ConversationCompactor
from everloop.activities.lease import begin_attempt
from everloop.activities.model.models import Models
from everloop.activities.transcripts import whole_transcript
from everloop.stores.conversations.fitting import Room, newest_messages
from everloop.stores.conversations.store import Conversations
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import (
    CompactConversationInput,
    ConversationMessage,
    LoadContextInput,
    LoadContextResult,
    SaveContextInput,
    SaveContextResult,
)
from everloop.workflows.contract.messages import TranscriptMessage
from everloop.workflows.contract.names import context_key
from everloop.workflows.contract.ports import ContextPort
from everloop.workflows.contract.settings import Memory
from everloop.workflows.contract.tasks import TaskRef


class RememberedConversation(ContextPort):
    """Reads and writes the conversation of a task's context, which is its owner's alone."""

    def __init__(
        self,
        conversations: Conversations,
        transcripts: Transcripts,
        models: Models,
        leases: ToolRecords,
    ) -> None:
        self._leases = leases
        self._conversations = conversations
        self._transcripts = transcripts
        self._compactor = ConversationCompactor(conversations, models)

    @activity.defn
    async def load_context(self, call: LoadContextInput) -> LoadContextResult:
        context, memory = _context(call.task), call.memory
        lease = await begin_attempt(self._leases, call.task.task_id, f"context {call.task.run_id}")
        recent = await self._recent(context, memory)
        summaries = () if memory.strategy == "window" else await self._conversations.get_summaries(context)
        end = (await self._conversations.get_span(context)).stop if summaries else 0
        messages = recalled(summaries, recent, end)
        # Also if there are none: an earlier attempt may have put some that are forgotten since.
        await self._transcripts.put(call.task.task_id, call.task.run_id, 0, messages, lease)
        return LoadContextResult(messages=tuple(messages))

    @activity.defn
    async def save_context(self, call: SaveContextInput) -> SaveContextResult | None:
        context = _context(call.task)
        messages = remembered(await self._transcript(call))
        await self._conversations.append(context, call.task.task_id, messages)
        return SaveContextResult(is_long=await self._compactor.is_long(context, call.memory))

    @activity.defn
    async def compact_conversation(self, call: CompactConversationInput) -> None:
        await self._compactor.compact(call)

    async def _recent(self, context: str, memory: Memory) -> Sequence[ConversationMessage]:
        """Return the newest messages that fit; if not even the last words do, without their files."""
        count, tokens = memory.max_messages, token_budget(memory)
        if recent := await self._conversations.get_recent(context, count, tokens):
            return recent
        messages = with_lines_for_files(await self._conversations.get_recent(context, count))
        return newest_messages(messages, Room.of_tokens(count, tokens, self._conversations.count_tokens))

    async def _transcript(self, call: SaveContextInput) -> Sequence[TranscriptMessage]:
        """Return what the task added to its transcript.

        Raises:
            ApplicationError: `TranscriptMissing`: the cache has lost it.
        """
        opened = await self._transcripts.open(call.task.task_id, call.task.run_id, call.length)
        return whole_transcript(opened, call.length, call.digest)[call.first :]


def _context(task: TaskRef) -> str:
    return context_key(task.owner, task.context_id)
