"""What was said in a context, over all its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from everloop.stores.token_counts import CountTokens, estimate_tokens
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.wire import Wire

CONVERSATION_TTL = timedelta(days=30)
"""How long a conversation is kept after its last message."""

MAX_MESSAGES = 1000
"""So many messages are kept of a conversation, the newest ones."""

MAX_TASKS = 10_000
"""So many tasks are known to have appended to a conversation, the newest ones."""


class ConversationSummary(Wire):
    """What stands for the messages from position `start` up to `end` (exclusive).

    `level` is 0 for a summary of messages, 1 for one of summaries, 2 for one of those.
    """

    level: int = 0
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Span:
    """Positions of the messages that can be read: from `start` up to `end` (exclusive)."""

    start: int
    end: int


class Conversations(ABC):
    """Messages of contexts, which `names.context_key` names: every owner has conversations of their own.

    Each message has a position, counted from 0 since the conversation began. It stays the same when the
    oldest messages make room: of a conversation `MAX_MESSAGES` are kept, until 30 days after the last one.
    `count_tokens` tells how many tokens a message has (default: an estimate).
    """

    def __init__(self, *, count_tokens: CountTokens = estimate_tokens) -> None:
        self.count_tokens = count_tokens

    @abstractmethod
    async def append(self, context: str, task_id: str, messages: Sequence[ConversationMessage]) -> None:
        """Add what a task has to say, all of it at once; of one task this is done once.

        That is remembered of the last `MAX_TASKS` tasks, for as long as the conversation is kept.
        """

    @abstractmethod
    async def get_recent(
        self, context: str, max_messages: int, max_tokens: int | None = None
    ) -> list[ConversationMessage]:
        """Return the newest messages, oldest first; None for as many tokens as they have.

        The first one is the user's, and no tool call is parted from its result. Of the last turn (a message
        of the user and what came of it) only the beginning and the end are returned if it is too long alone;
        nothing if not even the beginning has room.
        """

    @abstractmethod
    async def get_all(self, context: str) -> list[ConversationMessage]:
        """Return all messages that are kept, oldest first."""

    @abstractmethod
    async def get_count(self, context: str) -> int:
        """Return how many messages are kept."""

    @abstractmethod
    async def get_span(self, context: str) -> Span:
        """Return the positions of the messages that are kept."""

    @abstractmethod
    async def get_range(self, context: str, start: int, end: int) -> list[ConversationMessage]:
        """Return the messages from position `start` up to `end` (exclusive), as far as they are kept."""

    @abstractmethod
    async def compact(self, context: str, summary: ConversationSummary) -> None:
        """Keep a summary in place of those whose ranges it covers; the messages stay.

        Nothing changes if its range is not new: if a summary covers it already, or overlaps it. One of
        messages that were cleared meanwhile, or never were there, is not kept either.
        """

    @abstractmethod
    async def get_summaries(self, context: str) -> list[ConversationSummary]:
        """Return the summaries by position. Their ranges do not overlap."""

    @abstractmethod
    async def clear(self, context: str) -> None:
        """Forget all messages and summaries. Positions go on, and no task that has appended does so again."""
