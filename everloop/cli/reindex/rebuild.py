"""Restore views of tasks, as a gateway does when a client requests a lost one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from temporalio.client import Client

from everloop.cli.reindex.listed_tasks import Chosen, FoundTask, listed_tasks
from everloop.cli.reindex.progress import ReindexProgress
from everloop.gateway.errors import (
    NoWorkerError,
    PayloadLostError,
    TaskUnknownError,
    TemporalUnavailableError,
)
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.reconcile import Reconciler, restore_view
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.gateway.tasks.workflow_runs import Runs
from everloop.runtime.redis import StoreSettings, check_redis, connect_redis
from everloop.runtime.schedules.schedule_definition import QueueSettings
from everloop.runtime.temporal.temporal_connection import connect_temporal
from everloop.stores.artifacts.artifact_store import ArtifactSettings, make_artifacts
from everloop.stores.blobs.blob_settings import BlobSettings, opened_blobs
from everloop.stores.lifetimes import RetentionSettings
from everloop.stores.log.log_store import TaskViews
from everloop.stores.secrets import Secrets
from everloop.stores.transcripts import Transcripts

TRIES = 5
"""Attempts to query a worker for a task, of 3 s each: it may be busy. A step that was given to a stopping
worker ends after 10 s; no other worker is queried before."""

_NO_WORKER = (
    "no worker answers for it: see whether workers run on EVERLOOP_TASK_QUEUE, and whether it is paused or "
    "stuck; then run this again"
)


class Rebuild:
    """Restore views; a newer existing view is kept, only its places in lists are renewed."""

    def __init__(
        self, stores: Stores, tasks: Tasks, reconciler: Reconciler, progress: ReindexProgress, *, at_once: int
    ) -> None:
        self._stores = stores
        self._tasks = tasks
        self._reconciler = reconciler
        self._progress = progress
        self._slots = asyncio.Semaphore(at_once)

    async def restore(self, page: Sequence[FoundTask]) -> None:
        """Restore all tasks of a page; the failure of one does not affect the others."""
        await asyncio.gather(*map(self._restore_one, page))

    async def _restore_one(self, task: FoundTask) -> None:
        async with self._slots:
            try:
                is_published = await self._try(task)
            except TaskUnknownError:
                is_published = False  # its history has just expired
            except Exception as error:  # noqa: BLE001 -- one failure must not stop the others
                self._progress.not_restored(task.task_id, _reason(error))
                return
        if is_published:
            self._progress.restored()
        else:
            self._progress.left_out()

    async def _try(self, task: FoundTask) -> bool:
        for tries in range(1, TRIES + 1):
            try:
                return await self._restored(task)
            except (NoWorkerError, TemporalUnavailableError):
                if tries == TRIES:
                    raise
        raise AssertionError

    async def _restored(self, task: FoundTask) -> bool:
        """Restore the view of a task, and return whether clients see it."""
        view = await self._tasks.view(task.task_id)
        if not await restore_view(view, self._stores.views, self._stores.artifacts):
            return False
        if not task.is_running and not view.status.state.is_terminal:
            await self._reconciler.reconcile(task.task_id)  # it ended without publishing it
        return True


async def rebuild(agent_id: str, owner: str, at_once: int, progress: ReindexProgress) -> None:
    """Restore the views of all tasks, or of those of an agent and an owner; `progress` reports it.

    Raises:
        BlobsUnfitError, RedisUnfitError, TemporalUnreachableError: a server, or its configuration, is unfit.
        RPCError, RedisError, OSError: a server stopped answering.
    """
    settings = RetentionSettings()
    ended_since = datetime.now(UTC) - settings.task_ttl
    chosen = Chosen(QueueSettings().task_queue, agent_id, owner, ended_since)
    async with _connected(settings, at_once, progress) as (restoring, client):
        async for page in listed_tasks(client, chosen):
            await restoring.restore(page)
    progress.end()


@asynccontextmanager
async def _connected(
    settings: RetentionSettings, at_once: int, progress: ReindexProgress
) -> AsyncGenerator[tuple[Rebuild, Client]]:
    async with connect_redis(StoreSettings().redis_url) as redis:
        await check_redis(redis)
        async with opened_blobs(BlobSettings(), redis) as blobs:
            client = await connect_temporal((), blobs)
            # No notifications: restored views are not news.
            views = TaskViews(redis, settings)
            artifacts = make_artifacts(ArtifactSettings(), redis, blobs, views.retention)
            stores = Stores(views, Secrets(redis), artifacts, Transcripts(redis))
            tasks = Tasks(client, QueueSettings().task_queue)
            reconciler = Reconciler(stores, tasks, Runs(client))
            yield Rebuild(stores, tasks, reconciler, progress, at_once=at_once), client


def _reason(error: Exception) -> str:
    if isinstance(error, NoWorkerError):
        return _NO_WORKER
    if isinstance(error, PayloadLostError):
        return "a large payload of it is lost: restore the blob store, then run this again"
    if isinstance(error, TemporalUnavailableError):
        return "Temporal does not answer; run this again"
    return " ".join(f"{type(error).__name__}: {error}".split())
