"""What was said in a context, over all its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta

from workflows.contract.messages import AssistantMessage, UserMessage

SpokenMessage = UserMessage | AssistantMessage

CONVERSATION_TTL = timedelta(days=30)
"""How long a conversation is kept after its last message."""

MAX_MESSAGES = 1000
"""So many messages are kept of a conversation, the newest ones."""


class Conversations(ABC):
    """Messages of contexts, which `names.context_key` names: every owner has conversations of their own."""

    @abstractmethod
    async def append(self, context: str, task_id: str, messages: Sequence[SpokenMessage]) -> None:
        """Add what a task has to say; of one task this is done once."""

    @abstractmethod
    async def get_recent(self, context: str, max_messages: int) -> list[SpokenMessage]:
        """Return the newest messages, oldest first."""
