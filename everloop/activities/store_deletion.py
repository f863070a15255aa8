"""Delete tasks, contexts and owners from Temporal, Redis and the blob store, one limited step a call."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from urllib.parse import unquote

import structlog
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger
from temporalio import activity
from temporalio.client import Client

from everloop.activities.lease import heartbeating
from everloop.runtime.blobs import Blobs
from everloop.runtime.concurrency import for_each
from everloop.runtime.redis import literal, remove_matching
from everloop.runtime.schedules.schedules import Schedules, ScheduleUnknownError
from everloop.runtime.temporal.blob_payloads import payload_folder
from everloop.runtime.temporal.executions import TaskExecutions
from everloop.stores.conversations.conversation_store import Conversations
from everloop.stores.keys import owner_prefix, request_rate_key, tool_result_key
from everloop.stores.log.log_store import TaskViews
from everloop.stores.push.schedule_webhooks import ScheduleWebhooks
from everloop.stores.retention.removal import ArtifactRemoval, TaskRemoval
from everloop.stores.retention.users import remove_folder
from everloop.workflows.contract.deletion_payloads import (
    DeletionKind,
    DeletionPort,
    DeletionTarget,
    RemovedCounts,
    RemoveResult,
)
from everloop.workflows.contract.names import context_key, quoted

STEP = 500
"""Limit of tasks, or contexts, that one step removes."""

_NOTHING = RemovedCounts()

_log: FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(eq=False)
class StoreDeletion(DeletionPort):
    """Deletes the data of an owner. Steps may run concurrently, and each may die at any point.

    References are deleted last: a task's entries in the lists of its owner and context once nothing else of
    the task is found, and a context once it has no tasks.
    """

    redis: Redis
    blobs: Blobs
    client: Client
    task_queue: str
    views: TaskViews
    webhooks: ScheduleWebhooks

    def __post_init__(self) -> None:
        self._executions = TaskExecutions(self.client)
        self._schedules = Schedules(self.client, self.task_queue)
        self._keys = TaskRemoval(self.redis)
        self._artifacts = ArtifactRemoval(self.redis, self.blobs)
        self._conversations = Conversations(self.redis)

    @activity.defn
    async def remove(self, target: DeletionTarget) -> RemoveResult:
        async with heartbeating():
            match target.kind:
                case DeletionKind.TASK:
                    result = await self._remove_task(target)
                case DeletionKind.ARTIFACT:
                    result = await self._remove_artifact(target)
                case DeletionKind.CONTEXT:
                    result = await self._remove_context(target)
                case DeletionKind.OWNER:
                    result = await self._remove_owner(target.owner)
        if result.removed != _NOTHING:
            _log.info("deleted", kind=target.kind, **result.removed.model_dump())
        return result

    async def _remove_task(self, target: DeletionTarget) -> RemoveResult:
        context = context_key(target.owner, target.context_id)
        artifacts, blobs = await self._artifacts.of_context(context, target.id)
        # Before its entries in lists, which lead to its messages: those may outlive the rest of the task.
        messages = await self._conversations.forget_task(context, target.id)
        step = await self._tasks(target.owner, {target.id: target.context_id})
        was_last = await self._forget_if_empty(target.owner, target.context_id)
        return RemoveResult(
            removed=step.removed + RemovedCounts(artifacts=artifacts, blobs=blobs),
            found_nothing=step.found_nothing and not (artifacts or blobs or messages or was_last),
        )

    async def _remove_artifact(self, target: DeletionTarget) -> RemoveResult:
        context = await self.views.contexts.get(target.owner, target.context_id)
        shown = 0
        for task in context.tasks if context else ():
            shown += await self.views.forget_artifact(task.task_id, target.id)
        artifacts, blobs = await self._artifacts.one(context_key(target.owner, target.context_id), target.id)
        was_last = await self._forget_if_empty(target.owner, target.context_id)
        return RemoveResult(
            removed=RemovedCounts(artifacts=artifacts, blobs=blobs),
            found_nothing=not (shown or artifacts or blobs or was_last),
        )

    async def _forget_if_empty(self, owner: str, context_id: str) -> bool:
        """Forget a context without tasks and artifacts; return True if it existed.

        A task or artifact that is added meanwhile keeps it. Its conversation then holds positions without
        content.
        """
        context = context_key(owner, context_id)
        has_artifact = partial(self._artifacts.has_any, context)
        if was_last := await self.views.contexts.forget_if_empty(owner, context_id, has_artifact):
            await self._remove_results(f"{context}:")
        return was_last

    async def _remove_context(self, target: DeletionTarget) -> RemoveResult:
        owner, context_id = target.owner, target.context_id
        stored = await self.views.contexts.get(owner, context_id)
        tasks = {task.task_id: context_id for task in stored.tasks} if stored else dict[str, str]()
        is_used = stored is not None and not (stored.end and stored.end <= datetime.now(UTC))
        async with aclosing(self._executions.tasks_of(owner, context_id)) as found:
            async for task_id, _, is_running in found:
                tasks[task_id], is_used = context_id, is_used or is_running
                if len(tasks) >= STEP and not target.if_over:
                    break
        if target.if_over and is_used:
            return RemoveResult(found_nothing=True)
        if tasks:
            return await self._remove_tasks(owner, tasks)
        context = context_key(owner, context_id)
        removed = await self._content_of(context)
        removed += RemovedCounts(keys=await self._remove_results(f"{context}:"))
        was_listed = await self.views.contexts.forget(owner, context_id)
        return RemoveResult(removed=removed, found_nothing=removed == _NOTHING and not was_listed)

    async def _remove_owner(self, owner: str) -> RemoveResult:
        schedules = await self._remove_schedules(owner)
        if tasks := await self._tasks_of(owner):
            return await self._remove_tasks(owner, tasks)
        removed = _NOTHING
        for context_id in (contexts := await self._contexts_of(owner)):
            removed += await self._content_of(context_key(owner, context_id))
            await self.views.contexts.forget(owner, context_id)
        if contexts:
            return RemoveResult(removed=removed)
        prefix, rate = owner_prefix(owner), request_rate_key(owner)
        keys = await remove_matching(self.redis, f"{literal(prefix)}:*", lambda key: key != rate)
        keys += await self._remove_results(f"{quoted(owner)}:")
        await self.redis.unlink(rate)  # not counted: a request for the progress creates it again
        return RemoveResult(removed=RemovedCounts(keys=keys), found_nothing=not (schedules or keys))

    async def _tasks_of(self, owner: str) -> Mapping[str, str]:
        """Return some tasks with their contexts. Empty only if neither the lists nor Temporal have any."""
        tasks = await self.views.lists.tasks_of(owner, STEP)
        if not tasks:
            for context_id in await self.views.contexts.ids(owner, STEP):
                stored = await self.views.contexts.get(owner, context_id)
                tasks |= {task.task_id: context_id for task in stored.tasks} if stored else {}
        if not tasks:
            async with aclosing(self._executions.tasks_of(owner)) as found:
                async for task_id, context_id, _ in found:
                    tasks[task_id] = context_id
                    if len(tasks) >= STEP:
                        break
        return tasks

    async def _remove_tasks(self, owner: str, tasks: Mapping[str, str]) -> RemoveResult:
        """Remove some of these tasks; others may be left."""
        some = dict(list(tasks.items())[:STEP])
        return RemoveResult(removed=(await self._tasks(owner, some)).removed)

    async def _tasks(self, owner: str, tasks: Mapping[str, str]) -> RemoveResult:
        """Remove tasks of these contexts, and their list entries once nothing else of them is found."""
        removed_runs = await for_each(tasks, self._executions.remove)
        keys = await self._keys.keys_of(list(tasks))
        folders = await for_each(tasks, lambda task: remove_folder(self.blobs, payload_folder(task)))
        blobs = sum(map(len, folders))
        if any(removed_runs) or keys or blobs:
            return RemoveResult(removed=RemovedCounts(keys=keys, blobs=blobs))
        unlisted = await for_each(tasks, lambda task: self._unlist(owner, task, tasks[task]))
        return RemoveResult(removed=RemovedCounts(tasks=sum(unlisted)), found_nothing=not any(unlisted))

    async def _unlist(self, owner: str, task_id: str, context_id: str) -> bool:
        was_listed = await self.views.lists.forget(owner, task_id)
        await self._conversations.unlist_task(context_key(owner, context_id), task_id)
        return await self.views.contexts.forget_task(owner, context_id, task_id) or was_listed

    async def _content_of(self, context: str) -> RemovedCounts:
        """Remove the content of a context, apart from its tasks."""
        artifacts, blobs = await self._artifacts.of_context(context)
        keys = await self._conversations.remove(context)
        return RemovedCounts(artifacts=artifacts, blobs=blobs, keys=keys)

    async def _remove_results(self, prefix: str) -> int:
        """Remove the cached tool results of an owner or a context."""
        return await remove_matching(self.redis, f"{literal(tool_result_key(prefix))}*")

    async def _remove_schedules(self, owner: str) -> int:
        """Remove schedules. Their files are in contexts of their own, which are removed as contexts."""
        found = (await self._schedules.of_owner(owner)).ids
        for schedule_id in found:
            await self.webhooks.remove(schedule_id)
            try:
                await self._schedules.remove(schedule_id)
            except ScheduleUnknownError:  # removed a moment ago
                continue
        return len(found)

    async def _contexts_of(self, owner: str) -> Sequence[str]:
        """Return some contexts: listed ones first, then unlisted ones with leftover data."""
        if listed := await self.views.contexts.ids(owner, STEP):
            return listed
        prefix = f"{quoted(owner)}:"
        keys = await self._artifacts.contexts_of(prefix) | await self._conversations.contexts_of(prefix)
        return [unquote(key.removeprefix(prefix)) for key in sorted(keys)[:STEP]]
