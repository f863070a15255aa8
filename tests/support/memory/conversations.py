"""Conversations in memory, for tests: what they compare the real store with."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from everloop.stores.conversations import MAX_MESSAGES, Conversations, ConversationSummary, Span
from everloop.stores.recent_messages import Room, newest_messages
from everloop.stores.token_counts import CountTokens, estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage


@dataclass
class _Conversation:
    """`start` is the position of the first message, `cleared` up to where messages were forgotten."""

    start: int = 0
    cleared: int = 0
    messages: list[ConversationMessage] = field(default_factory=list[ConversationMessage])
    summaries: list[ConversationSummary] = field(default_factory=list[ConversationSummary])
    tasks: set[str] = field(default_factory=set[str])

    @property
    def end(self) -> int:
        return self.start + len(self.messages)


class MemoryConversations(Conversations):
    """Keeps conversations, and who has appended to them, until the process ends."""

    def __init__(self, *, count_tokens: CountTokens = estimate_tokens) -> None:
        self.count_tokens = count_tokens
        self._conversations: defaultdict[str, _Conversation] = defaultdict(_Conversation)

    async def append(self, context: str, task_id: str, messages: Sequence[ConversationMessage]) -> None:
        kept = self._conversations[context]
        if task_id in kept.tasks:
            return
        kept.tasks.add(task_id)
        kept.messages += messages
        too_many = max(len(kept.messages) - MAX_MESSAGES, 0)
        del kept.messages[:too_many]
        kept.start += too_many

    async def get_recent(
        self, context: str, max_messages: int, max_tokens: int | None = None
    ) -> list[ConversationMessage]:
        room = Room.of_tokens(max_messages, max_tokens, self.count_tokens)
        return newest_messages(self._conversations[context].messages, room)

    async def get_span(self, context: str) -> Span:
        kept = self._conversations[context]
        return Span(kept.start, kept.end)

    async def get_range(self, context: str, start: int, end: int) -> list[ConversationMessage]:
        kept = self._conversations[context]
        return kept.messages[max(start - kept.start, 0) : max(end - kept.start, 0)]

    async def compact(self, context: str, summary: ConversationSummary) -> None:
        kept = self._conversations[context]
        if not kept.cleared <= summary.start < summary.end <= kept.end:
            return
        apart = [s for s in kept.summaries if s.end <= summary.start or summary.end <= s.start]
        met = [s for s in kept.summaries if s not in apart]
        if all(_covers(summary, other) for other in met):
            kept.summaries = sorted([*apart, summary], key=lambda s: s.start)

    async def get_summaries(self, context: str) -> list[ConversationSummary]:
        return list(self._conversations[context].summaries)

    async def clear(self, context: str) -> None:
        kept = self._conversations[context]
        kept.start = kept.cleared = kept.end
        kept.messages, kept.summaries = [], []


def _covers(summary: ConversationSummary, other: ConversationSummary) -> bool:
    """Whether a summary stands for all that another one does, and more."""
    is_same = (summary.start, summary.end) == (other.start, other.end)
    return not is_same and summary.start <= other.start and other.end <= summary.end
