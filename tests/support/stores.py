"""The stores of a test, on a database of its own: gateways of other tests sweep the shared one."""

from redis.asyncio import Redis

from everloop.gateway.settings import Stores
from everloop.stores.artifacts.artifact_store import Artifacts
from everloop.stores.blobs.redis_blobs import RedisBlobs
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.keys import outcomes_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.scripts import Lease
from everloop.stores.secrets import Secrets
from everloop.stores.tool_records import ToolRecords
from everloop.stores.transcripts import Transcripts
from everloop.workflows.contract.calls import ConversationMessage, ToolReply

DATABASES: list[Redis] = []
"""Databases that the fixture `redis` has opened for the running test."""


def database() -> Redis:
    """Return the database of the running test, which started empty."""
    assert DATABASES, "the test needs the fixture `redis`"
    return DATABASES[-1]


def new_artifacts(views: TaskViews | None = None) -> Artifacts:
    """Return a store of artifacts, beside these views."""
    redis = redis_of(views) if views else database()
    return Artifacts(redis, RedisBlobs(redis))


def redis_of(store: TaskViews) -> Redis:
    """Return the database of a store."""
    return store._redis


def stores_of(
    views: TaskViews,
    artifacts: Artifacts | None = None,
    transcripts: Transcripts | None = None,
    link_seconds: int = 0,
) -> Stores:
    """Return the stores of a gateway, beside these views."""
    redis = redis_of(views)
    transcripts = transcripts or Transcripts(redis)
    return Stores(views, Secrets(redis), artifacts or new_artifacts(views), transcripts, link_seconds)


async def kept_messages(conversations: Conversations, context: str) -> list[ConversationMessage]:
    """Return all stored messages, oldest first."""
    span = await conversations.get_span(context)
    return await conversations.get_range(context, span.start, span.stop)


async def count_kept(conversations: Conversations, context: str) -> int:
    """Return the number of stored messages."""
    span = await conversations.get_span(context)
    return span.stop - span.start


class SingleRecords(ToolRecords):
    """Tool records in which each step takes a round trip of its own."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self._redis = redis

    async def release(self, lease: Lease, seconds: float = 0) -> None:
        await self.run(self.releasing(lease, seconds))

    async def finish(self, lease: Lease, outcome: ToolReply) -> ToolReply:
        (standing,) = await self.run(self.finishing(lease, outcome))
        return standing

    async def outcome(self, task_id: str, call_id: str) -> ToolReply | None:
        """Return the outcome of a call, or None if it is missing or unreadable."""
        found = await self._redis.hget(outcomes_key(task_id), call_id)
        return self._parse(task_id, call_id, str(found)) if found else None
