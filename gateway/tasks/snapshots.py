"""Snapshots of tasks: from the store, or, where the store lost them, from the workflow."""

import asyncio
from weakref import WeakValueDictionary

import structlog

from everloop.gateway.backends import Stores
from everloop.gateway.context import Viewer, viewer_of_view
from everloop.gateway.errors import NoWorkerError, TaskUnknownError
from everloop.gateway.instruments import record_rebuilt
from everloop.gateway.tasks.reconcile import Reconciler, last_published_at, restore_view
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.telemetry.logs import bind_task, task_fields
from everloop.stores.views.interface import START, Snapshot
from everloop.workflows.contract import names
from everloop.workflows.contract.events import StatusChanged

CHECK_WAIT = 0.5
"""Seconds that a snapshot waits to hear what became of a silent task; the next one will tell otherwise."""

SMALL_BYTES = 1_000_000
"""A snapshot has history and artifacts of a view that takes at most so much, as it is stored.

Who needs them of a larger one gets them as there is room (`everloop.gateway.tasks.large`).
"""

CHILD_SEPARATOR = names.child_task_id("", "")
"""In ids of sub-agents' tasks only (clients' have none). Whoever could see one could also answer or cancel
it, behind the back of the task that waits for it."""

_log = structlog.get_logger()


class Snapshots:
    """View and stream position of a task, for those who may see it."""

    def __init__(self, stores: Stores, tasks: Tasks, reconciler: Reconciler) -> None:
        self._views = stores.views
        self._artifacts = stores.artifacts
        self._tasks = tasks
        self._reconciler = reconciler
        self._restoring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open(self, task_id: str, viewer: Viewer) -> Snapshot:
        """Do as `take` does, for a request that is about this task: its log lines name it from here on."""
        snapshot = await self.take(task_id, viewer)
        bind_task(snapshot.view)
        return snapshot

    async def take(self, task_id: str, viewer: Viewer) -> Snapshot:
        """Return the snapshot of a task; of one that has been silent, after a look at what became of it.

        A large one comes without history and artifacts.

        Raises:
            TaskUnknownError: there is no such task, or it is another owner's or agent's, or a sub-agent's.
            UnavailableError: the view is lost, and what it takes to rebuild it does not answer.
        """
        if CHILD_SEPARATOR in task_id:
            raise TaskUnknownError(task_id)
        known = await self._load(task_id)
        snapshot = known or await self._restored(task_id)
        if viewer_of_view(snapshot.view) != viewer:
            raise TaskUnknownError(task_id)
        if snapshot.position == START and await self._has_gone_on(task_id):
            raise NoWorkerError
        # A view that was just restored may be that of a run which was terminated long ago.
        silent_since = last_published_at(snapshot) if known else 0.0
        if not self._reconciler.is_due(silent_since) or not (check := self._reconciler.check_soon(task_id)):
            return snapshot
        done, _ = await asyncio.wait({check}, timeout=CHECK_WAIT)
        return (await self._load(task_id) if done else None) or snapshot

    async def revived(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of a task that somebody wants to act on; if it has ended, look again.

        An operator may have reset it. Without Temporal the snapshot stands.

        Raises:
            UnavailableError: it was reset, and nobody tells how it stands now.
        """
        if not snapshot.view.status.state.is_terminal:
            return snapshot
        await self._reconciler.reconcile_ended(snapshot.view.task_id)
        return await self._load(snapshot.view.task_id) or snapshot

    async def _load(self, task_id: str) -> Snapshot | None:
        return await self._views.load(task_id, most=SMALL_BYTES)

    async def _restored(self, task_id: str) -> Snapshot:
        """Rebuild the view, once for all who ask for it now."""
        lock = self._restoring.setdefault(task_id, asyncio.Lock())
        async with lock:
            return await self._load(task_id) or await self._restore(task_id)

    async def _restore(self, task_id: str) -> Snapshot:
        try:
            view = await self._tasks.view(task_id)
        except NoWorkerError:
            # Not stored: it shows how the task began, and the next caller may find a worker that knows more.
            view = (await self._tasks.beginning(task_id)).view
        else:
            if not await restore_view(view, self._views, self._artifacts):
                raise TaskUnknownError(task_id)
            record_rebuilt()
            _log.info("task view restored", **task_fields(view))
        return await self._load(task_id) or Snapshot(view, START)

    async def _has_gone_on(self, task_id: str) -> bool:
        """Whether a stream without its view tells of a status: how the task began would contradict it."""
        page = await self._views.read({task_id: START}, wait=0)
        return any(isinstance(streamed.event, StatusChanged) for streamed in page)
