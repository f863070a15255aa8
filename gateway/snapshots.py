"""Snapshots of tasks: from the store, or, where the store lost them, from the workflow."""

import asyncio
from weakref import WeakValueDictionary

import structlog

from gateway.errors import NoWorkerError, TaskUnknownError
from gateway.tasks import Tasks
from stores.task_views import START, Snapshot, TaskViews

_log = structlog.get_logger()


class Snapshots:
    """View and stream position of a task, for its owner only."""

    def __init__(self, views: TaskViews, tasks: Tasks) -> None:
        self._views = views
        self._tasks = tasks
        self._restoring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, task_id: str, owner: str) -> Snapshot:
        """Return the snapshot of a task.

        Raises:
            TaskUnknownError: there is no such task, or it belongs to somebody else.
            UnavailableError: the view is lost, and what it takes to rebuild it does not answer.
        """
        snapshot = await self._views.load(task_id) or await self._restored(task_id)
        if snapshot.view.owner != owner:
            raise TaskUnknownError(task_id)
        return snapshot

    async def _restored(self, task_id: str) -> Snapshot:
        """Rebuild the view, once for all who ask for it now."""
        lock = self._restoring.setdefault(task_id, asyncio.Lock())
        async with lock:
            return await self._views.load(task_id) or await self._restore(task_id)

    async def _restore(self, task_id: str) -> Snapshot:
        try:
            view = await self._tasks.view(task_id)
        except NoWorkerError:
            # Not stored: it shows how the task began, and the next caller may find a worker that knows more.
            view = await self._tasks.submitted_view(task_id)
        else:
            await self._views.restore(view)
            _log.info("task view restored", task_id=task_id)
        return await self._views.load(task_id) or Snapshot(view, START)
