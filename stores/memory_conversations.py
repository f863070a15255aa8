"""Conversations in memory, for one process and for tests."""

from collections import defaultdict
from collections.abc import Sequence

from stores.conversations import MAX_MESSAGES, Conversations, SpokenMessage


class MemoryConversations(Conversations):
    """Keeps everything until the process ends."""

    def __init__(self) -> None:
        self._messages: defaultdict[str, list[SpokenMessage]] = defaultdict(list)
        self._tasks: set[tuple[str, str]] = set()

    async def append(self, context: str, task_id: str, messages: Sequence[SpokenMessage]) -> None:
        if (context, task_id) not in self._tasks:
            self._tasks.add((context, task_id))
            self._messages[context] = [*self._messages[context], *messages][-MAX_MESSAGES:]

    async def get_recent(self, context: str, max_messages: int) -> list[SpokenMessage]:
        return self._messages[context][-max_messages:] if max_messages else []
