"""Applies the retention of contexts and tasks."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from everloop.runtime.blobs import Blobs
from everloop.runtime.temporal.deletions import Deletions
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.log.contexts import ContextInfo, Contexts, ContextTask, DueContext
from everloop.stores.retention.cleaned import Cleaned
from everloop.stores.retention.removal import ArtifactRemoval
from everloop.workflows.contract.deletion_payloads import DeletionKind, DeletionTarget
from everloop.workflows.contract.names import context_key

LOOK_AFTER = timedelta(hours=12)
"""Time until contexts and tasks with a longer retention are checked again: data that was added since lives
for a day at least. Events would not, but the publisher of the end of their task extends their time to live.
"""

LOOKED_AT = 100


class Retentions:
    """Applies the retention of contexts and tasks.

    If it is shorter than the default time to live, the data is deleted as on a request of the owner. If it is
    longer, the times to live are extended.
    """

    def __init__(self, redis: Redis, blobs: Blobs, deletions: Deletions) -> None:
        self._contexts = Contexts(redis)
        self._conversations = Conversations(redis)
        self._artifacts = ArtifactRemoval(redis, blobs)
        self._deletions = deletions

    async def clean(self, _: str = "", *, dry_run: bool) -> Cleaned:
        """Check at most 100 contexts; return how many deletions were (or would be) started."""
        due = await self._contexts.due(LOOKED_AT)
        begun = sum([await self._look_at(each, dry_run=dry_run) for each in due])
        return Cleaned(begun, "due" if len(due) == LOOKED_AT and not dry_run else "")

    async def _look_at(self, due: DueContext, *, dry_run: bool) -> int:
        context, at = await self._contexts.get(due.owner, due.context_id), datetime.now(UTC)
        over = list(_over(context, at)) if context else []
        if dry_run:
            return len(over)
        for target in over:
            await self._deletions.start(target)
        if context:
            await self._prolong(context, at)
        await self._contexts.look_again(due, _next_look(context, at) if context else None)
        return len(over)

    async def _prolong(self, context: ContextInfo, at: datetime) -> None:
        key = context_key(context.owner, context.context_id)
        await self._conversations.prolong(key, context.retention)
        if (life := context.retention) is not None:
            until = life + (at if context.open_tasks else context.updated_at)
            others = [task.task_id for task in context.tasks if task.retention is None]
            await self._contexts.prolong(context.owner, context.context_id, until - at, others)
            await self._artifacts.prolong(key, until)
        for task in context.tasks:
            if (until := _end(task)) is not None:
                await self._contexts.prolong(context.owner, context.context_id, until - at, [task.task_id])
                await self._artifacts.prolong(key, until, task.task_id)


def _end(task: ContextTask) -> datetime | None:
    """Return the end of an ended task's retention, or None if no retention was set."""
    return task.changed_at + task.retention if task.retention and not task.is_open else None


def _over(context: ContextInfo, at: datetime) -> Iterator[DeletionTarget]:
    """Yield the deletions that are due in a context: the context itself, or single tasks."""
    named: Mapping[str, Any] = {"owner": context.owner, "context_id": context.context_id}
    if context.end and context.end <= at:
        yield DeletionTarget(kind=DeletionKind.CONTEXT, if_over=True, **named)
        return
    for task in context.tasks:
        if (end := _end(task)) and end <= at:
            yield DeletionTarget(kind=DeletionKind.TASK, id=task.task_id, **named)


def _next_look(context: ContextInfo, at: datetime) -> datetime | None:
    lives = [context.retention, *(task.retention for task in context.tasks)]
    given = [life for life in lives if life is not None]
    if not given:
        return None
    ends = [end for end in (context.end, *map(_end, context.tasks)) if end and end > at]
    return min([*ends, at + min([*given, LOOK_AFTER])])
