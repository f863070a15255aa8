"""What a conversation holds, for tests."""

from everloop.stores.conversations.store import Conversations
from everloop.workflows.contract.calls import ConversationMessage


async def kept_messages(conversations: Conversations, context: str) -> list[ConversationMessage]:
    """Return all messages that are kept, oldest first."""
    span = await conversations.get_span(context)
    return await conversations.get_range(context, span.start, span.stop)


async def count_kept(conversations: Conversations, context: str) -> int:
    """Return how many messages are kept."""
    span = await conversations.get_span(context)
    return span.stop - span.start
