"""Snapshots of tasks: from the store, or, if the store lost them, from the workflow."""

import asyncio
from collections.abc import MutableMapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import structlog

from everloop.gateway.context import Viewer, viewer_of_view
from everloop.gateway.errors import (
    GatewayError,
    NoWorkerError,
    TaskReadOnlyError,
    TaskTooLargeError,
    TaskUnknownError,
    UnavailableNowError,
)
from everloop.gateway.gateway_instruments import requests_refused, views_rebuilt
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.reconcile import Reconciler, last_published_at, restore_view
from everloop.gateway.tasks.task_workflows import Tasks
from everloop.runtime.telemetry.logs import bind_task, task_fields
from everloop.stores.log.log_types import START, Snapshot
from everloop.stores.push.deliveries import NotificationError
from everloop.workflows.contract import names
from everloop.workflows.contract.events import StatusChanged

CHECK_WAIT = 0.5
"""Seconds that a snapshot waits for the check of a silent task. The next snapshot includes a later result."""

SMALL_BYTES = 1_000_000
"""Maximum stored bytes of a view for a snapshot with history and artifacts. Those of a larger view are
loaded when there is memory (`Snapshots.whole`)."""

CHILD_SEPARATOR = names.child_task_id("", "")
"""In ids of sub-agents' tasks only (clients' have none). Callers who see the client's task above one may
read it, but not change it: the task above waits for it."""

_log = structlog.get_logger()


# Large tasks: loaded one by one within a memory limit, so that they never fill the memory.
#
# A task in a response takes several times its stored bytes: as the store's reply, parsed, as a protobuf
# message, and as the text that is sent.

HELD = "everloop.held"
"""Key in the state of a call: resources that are released after the response."""

AT_ONCE = 2
"""Tasks of the largest size that are in memory at a time. More would not be faster: there is one event
loop."""

WAIT = 20.0
"""Seconds that a call waits for memory."""

RETRY_AFTER = 5
"""Seconds after which a client may retry a call that got none."""


class ByteLimiter:
    """Limits the bytes that are in use at a time. Requests for more wait in order of arrival."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._first = asyncio.Lock()  # serializes requests: a lock wakes its waiters in order
        self._freed = asyncio.Event()

    async def hold(self, size: int, held: ExitStack) -> None:
        """Wait for memory, and reserve it until `held` is closed. Sizes above the limit count as the limit.

        Raises:
            UnavailableNowError: there was none in time.
        """
        size = min(size, self._size)
        try:
            async with asyncio.timeout(WAIT), self._first:
                while size > self._left:
                    self._freed.clear()
                    await self._freed.wait()
                self._left -= size
        except TimeoutError:
            requests_refused.add(1, {"limit": "large_tasks"})
            raise UnavailableNowError(
                "this server shows as many large tasks as it can at once; send the same request again in a "
                "few seconds, or ask for less with historyLength",
                retry_after=RETRY_AFTER,
            ) from None
        held.callback(self._give_back, size)

    def _give_back(self, size: int) -> None:
        self._left += size
        self._freed.set()


class Snapshots:
    """View and stream position of a task, with a check of access."""

    def __init__(self, stores: Stores, tasks: Tasks, reconciler: Reconciler) -> None:
        self._views = stores.views
        self._artifacts = stores.artifacts
        self._tasks = tasks
        self._reconciler = reconciler
        self._restoring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._limiter = ByteLimiter(AT_ONCE * stores.views.max_bytes)

    async def open(self, task_id: str, viewer: Viewer) -> Snapshot:
        """Take a snapshot for a request about this task. Later log lines name it."""
        snapshot = await self.take(task_id, viewer)
        bind_task(snapshot.view)
        return snapshot

    async def agent_of(self, task_id: str) -> str | None:
        """Return the agent by which clients address a task, even if its view is lost; None: no such task.

        Raises:
            TemporalUnavailableError: Temporal does not respond.
        """
        if not task_id:  # of an id that begins with a slash
            return None
        stored = await self._views.load(task_id, most=0)
        return stored.view.agent_id if stored else await self._tasks.agent_of(task_id)

    async def take(self, task_id: str, viewer: Viewer, *, stored: Snapshot | None = None) -> Snapshot:
        """Return the stored snapshot of a task. A silent task is checked by the next sweep.

        A large one comes without history and artifacts. `stored` is the snapshot that the store has just
        returned. A sub-agent's task belongs to the agent of the client's task above it, like all that
        clients see.

        Raises:
            TaskUnknownError: it does not exist, or belongs to another owner or agent.
            UnavailableError: the view is lost, and a server that is needed to rebuild it does not respond.
        """
        if names.is_child_task_id(task_id):
            return await self._of_sub_agent(task_id, viewer)
        return await self._take(task_id, viewer, stored)

    async def _of_sub_agent(self, task_id: str, viewer: Viewer) -> Snapshot:
        root_id = names.root_task_id(task_id)
        if not root_id:
            raise TaskUnknownError(task_id)
        try:
            root = (await self.take(root_id, viewer)).view
        except TaskUnknownError:
            raise TaskUnknownError(task_id) from None
        stored = await self._load(task_id)
        if stored is None and await self._tasks.agent_of(task_id) is None:
            raise TaskUnknownError(task_id)  # or not a task at all: it notifies a client of one
        snapshot = await self._take(task_id, None, stored)
        view = snapshot.view
        if (view.owner, view.context_id) != (root.owner, root.context_id):
            raise TaskUnknownError(task_id)
        return replace(snapshot, view=view.model_copy(update={"agent_id": root.agent_id}))

    async def _take(self, task_id: str, viewer: Viewer | None, stored: Snapshot | None) -> Snapshot:
        stored = stored or await self._load(task_id)
        if stored and stored.is_incomplete:
            stored = await self.completed(stored)
        snapshot = stored or await self._restored(task_id)
        if viewer and viewer_of_view(snapshot.view) != viewer:
            raise TaskUnknownError(task_id)
        if snapshot.position == START and await self._has_gone_on(task_id):
            raise NoWorkerError
        if stored is None:  # it may be the view of a run that was terminated long ago
            return await self._checked(snapshot)
        if not stored.view.status.state.is_terminal and self._reconciler.is_due(last_published_at(stored)):
            self._reconciler.note_reading(task_id)
        return stored

    async def revived(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of a task that is about to change; an ended or silent one is checked first.

        An operator may have reset it. Without Temporal the snapshot stands.

        Raises:
            UnavailableError: it was reset, and its state is unavailable.
        """
        if not snapshot.view.status.state.is_terminal:
            is_due = self._reconciler.is_due(last_published_at(snapshot))
            return await self._checked(snapshot) if is_due else snapshot
        await self._reconciler.reconcile_ended(snapshot.view.task_id)
        return await self._load(snapshot.view.task_id) or snapshot

    async def completed(self, known: Snapshot) -> Snapshot:
        """Return the task with the data of its workflow and the stores; unchanged while none responds."""
        task_id = known.view.task_id
        try:
            await restore_view(await self._tasks.view(task_id), self._views, self._artifacts)
        except (GatewayError, NotificationError) as error:
            _log.debug("task view not completed", **task_fields(known.view), error=str(error))
            return known
        _log.info("task view completed", **task_fields(known.view))
        return await self._load(task_id) or known

    async def complete(
        self, snapshot: Snapshot, held: ExitStack, *, history_length: int | None = None
    ) -> Snapshot:
        """Return the current task with its newest `history_length` messages (None: all).

        It counts toward the memory limit until `held` is closed. A complete snapshot is returned
        unchanged.

        Raises:
            TaskTooLargeError: it is larger than a task may be.
            UnavailableNowError: there was no memory for it in time.
        """
        if snapshot.is_complete:
            return snapshot
        task_id = snapshot.view.task_id
        sized = await self._views.load(task_id, most=0, history_length=history_length) or snapshot
        if sized.size > self._views.max_bytes:
            raise TaskTooLargeError(task_id, sized.size, self._views.max_bytes)
        if sized.size > SMALL_BYTES:
            await self._limiter.hold(sized.size, held)
        return await self._views.load(task_id, history_length=history_length) or snapshot

    async def _checked(self, snapshot: Snapshot) -> Snapshot:
        """Return the task after a check, unless it was checked a moment ago."""
        task_id = snapshot.view.task_id
        if not (check := self._reconciler.check_soon(task_id)):
            return snapshot
        done, _ = await asyncio.wait({check}, timeout=CHECK_WAIT)
        return (await self._load(task_id) if done else None) or snapshot

    async def _load(self, task_id: str) -> Snapshot | None:
        return await self._views.load(task_id, most=SMALL_BYTES)

    async def _restored(self, task_id: str) -> Snapshot:
        """Rebuild the view, once for all concurrent requests."""
        lock = self._restoring.setdefault(task_id, asyncio.Lock())
        async with lock:
            return await self._load(task_id) or await self._restore(task_id)

    async def _restore(self, task_id: str) -> Snapshot:
        try:
            view = await self._tasks.view(task_id)
        except NoWorkerError:
            # Not stored: this is the task's initial state, and a worker may soon return a newer one.
            view = (await self._tasks.beginning(task_id)).view
        else:
            if not await restore_view(view, self._views, self._artifacts):
                raise TaskUnknownError(task_id)
            views_rebuilt.add(1)
            _log.info("task view restored", **task_fields(view))
        return await self._load(task_id) or Snapshot(view, START)

    async def _has_gone_on(self, task_id: str) -> bool:
        """Whether a stream without its view has a status, which the task's initial state would contradict."""
        page = await self._views.read({task_id: START}, wait=0)
        return any(isinstance(streamed.event, StatusChanged) for streamed in page)


def refuse_if_read_only(task_id: str) -> None:
    """Reject changes to the task of a sub-agent.

    Raises:
        TaskReadOnlyError: it is one.
    """
    if names.is_child_task_id(task_id):
        raise TaskReadOnlyError(task_id, names.root_task_id(task_id))


def held_by(state: MutableMapping[str, Any]) -> ExitStack:
    """Return the resources of a call. Its server closes them after the response."""
    return state.setdefault(HELD, ExitStack())
