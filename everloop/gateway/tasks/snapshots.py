"""Snapshots of tasks: from the store, or, where the store lost them, from the workflow."""

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
from everloop.gateway.instruments import requests_refused, views_rebuilt
from everloop.gateway.settings import Stores
from everloop.gateway.tasks.reconcile import Reconciler, last_published_at, restore_view
from everloop.gateway.tasks.tasks import Tasks
from everloop.runtime.telemetry.logs import bind_task, task_fields
from everloop.stores.log.interface import START, Snapshot
from everloop.stores.push.deliveries import NotificationError
from everloop.workflows.contract import names
from everloop.workflows.contract.events import StatusChanged

CHECK_WAIT = 0.5
"""Seconds that a snapshot waits to hear what became of a silent task; the next one will tell otherwise."""

SMALL_BYTES = 1_000_000
"""A snapshot has history and artifacts of a view that takes at most so much, as it is stored.

Who needs them of a larger one gets them as there is room (`Snapshots.whole`).
"""

CHILD_SEPARATOR = names.child_task_id("", "")
"""In ids of sub-agents' tasks only (clients' have none). Who sees the client's task above one may read it,
and nobody changes it behind the back of the task that waits for it."""

_log = structlog.get_logger()


# Tasks that are large: loaded one by one as there is room for them, so that they never fill the memory.
#
# What is shown of a task takes several times its stored bytes: as the store answers it, parsed, as a message
# of protobuf, and as the text that is sent.

HELD = "everloop.held"
"""Where the state of a call has what is held until it is answered."""

AT_ONCE = 2
"""How many tasks of the largest size are shown at a time. More would be no faster: the loop is one."""

WAIT = 20.0
"""Seconds that a call waits for room."""

RETRY_AFTER = 5
"""Seconds after which a client may try again that got no room."""


class Room:
    """So many bytes may be held at a time; who asks for more than are left waits, in order of arrival."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size
        self._first = asyncio.Lock()  # whose turn it is: a lock wakes those who wait in their order
        self._freed = asyncio.Event()

    async def hold(self, size: int, held: ExitStack) -> None:
        """Wait for room, and hold it until `held` is closed; more than there is at all counts as all of it.

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
    """View and stream position of a task, for those who may see it."""

    def __init__(self, stores: Stores, tasks: Tasks, reconciler: Reconciler) -> None:
        self._views = stores.views
        self._artifacts = stores.artifacts
        self._tasks = tasks
        self._reconciler = reconciler
        self._restoring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._room = Room(AT_ONCE * stores.views.max_bytes)

    async def open(self, task_id: str, viewer: Viewer) -> Snapshot:
        """Do as `take` does, for a request that is about this task: its log lines name it from here on."""
        snapshot = await self.take(task_id, viewer)
        bind_task(snapshot.view)
        return snapshot

    async def agent_of(self, task_id: str) -> str | None:
        """Return the agent by which clients know a task, also of one whose view is lost; None: no such task.

        Raises:
            TemporalUnavailableError: nobody tells.
        """
        if not task_id:  # of an id that begins with a slash
            return None
        known = await self._views.load(task_id, most=0)
        return known.view.agent_id if known else await self._tasks.agent_of(task_id)

    async def take(self, task_id: str, viewer: Viewer, *, known: Snapshot | None = None) -> Snapshot:
        """Return the snapshot of a task as the store knows it; the next sweep looks at one that is silent.

        A large one comes without history and artifacts. `known` is what the store has just answered. A
        sub-agent's task is known by the agent of the client's task above it, as all that clients see.

        Raises:
            TaskUnknownError: there is no such task, or it is another owner's or agent's.
            UnavailableError: the view is lost, and what it takes to rebuild it does not answer.
        """
        if names.is_child_task_id(task_id):
            return await self._of_sub_agent(task_id, viewer)
        return await self._take(task_id, viewer, known)

    async def _of_sub_agent(self, task_id: str, viewer: Viewer) -> Snapshot:
        root_id = names.root_task_id(task_id)
        if not root_id:
            raise TaskUnknownError(task_id)
        try:
            root = (await self.take(root_id, viewer)).view
        except TaskUnknownError:
            raise TaskUnknownError(task_id) from None
        known = await self._load(task_id)
        if known is None and await self._tasks.agent_of(task_id) is None:
            raise TaskUnknownError(task_id)  # or no task at all, as what notifies a client of one
        snapshot = await self._take(task_id, None, known)
        view = snapshot.view
        if (view.owner, view.context_id) != (root.owner, root.context_id):
            raise TaskUnknownError(task_id)
        return replace(snapshot, view=view.model_copy(update={"agent_id": root.agent_id}))

    async def _take(self, task_id: str, viewer: Viewer | None, known: Snapshot | None) -> Snapshot:
        known = known or await self._load(task_id)
        if known and known.has_lost_statuses:
            known = await self._completed(known)
        snapshot = known or await self._restored(task_id)
        if viewer and viewer_of_view(snapshot.view) != viewer:
            raise TaskUnknownError(task_id)
        if snapshot.position == START and await self._has_gone_on(task_id):
            raise NoWorkerError
        if known is None:  # it may be the view of a run which was terminated long ago
            return await self._checked(snapshot)
        if not known.view.status.state.is_terminal and self._reconciler.is_due(last_published_at(known)):
            self._reconciler.note_reading(task_id)
        return known

    async def revived(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of a task that somebody wants to act on; of one ended or silent, anew.

        An operator may have reset it. Without Temporal the snapshot stands.

        Raises:
            UnavailableError: it was reset, and nobody tells how it stands now.
        """
        if not snapshot.view.status.state.is_terminal:
            is_due = self._reconciler.is_due(last_published_at(snapshot))
            return await self._checked(snapshot) if is_due else snapshot
        await self._reconciler.reconcile_ended(snapshot.view.task_id)
        return await self._load(snapshot.view.task_id) or snapshot

    async def whole(
        self, snapshot: Snapshot, held: ExitStack, *, history_length: int | None = None
    ) -> Snapshot:
        """Return the task with its newest `history_length` messages (None: all), as it stands now.

        It counts as being shown until `held` is closed. One that is whole already is returned as it is.

        Raises:
            TaskTooLargeError: it is larger than a task may be.
            UnavailableNowError: there was no room for it in time.
        """
        if snapshot.is_whole:
            return snapshot
        task_id = snapshot.view.task_id
        sized = await self._views.load(task_id, most=0, history_length=history_length) or snapshot
        if sized.size > self._views.max_bytes:
            raise TaskTooLargeError(task_id, sized.size, self._views.max_bytes)
        if sized.size > SMALL_BYTES:
            await self._room.hold(sized.size, held)
        return await self._views.load(task_id, history_length=history_length) or snapshot

    async def _checked(self, snapshot: Snapshot) -> Snapshot:
        """Return the task after a look at what became of it, unless somebody has just looked."""
        task_id = snapshot.view.task_id
        if not (check := self._reconciler.check_soon(task_id)):
            return snapshot
        done, _ = await asyncio.wait({check}, timeout=CHECK_WAIT)
        return (await self._load(task_id) if done else None) or snapshot

    async def _load(self, task_id: str) -> Snapshot | None:
        return await self._views.load(task_id, most=SMALL_BYTES)

    async def _restored(self, task_id: str) -> Snapshot:
        """Rebuild the view, once for all who ask for it now."""
        lock = self._restoring.setdefault(task_id, asyncio.Lock())
        async with lock:
            return await self._load(task_id) or await self._restore(task_id)

    async def _completed(self, known: Snapshot) -> Snapshot:
        """Return the task with what only its workflow knows; as it is known, while nobody answers."""
        task_id = known.view.task_id
        try:
            await restore_view(await self._tasks.view(task_id), self._views, self._artifacts)
        except (GatewayError, NotificationError) as error:
            _log.debug("lost statuses not restored", **task_fields(known.view), error=str(error))
            return known
        _log.info("lost statuses restored", **task_fields(known.view))
        return await self._load(task_id) or known

    async def _restore(self, task_id: str) -> Snapshot:
        try:
            view = await self._tasks.view(task_id)
        except NoWorkerError:
            # Not stored: it shows how the task began, and the next caller may find a worker that knows more.
            view = (await self._tasks.beginning(task_id)).view
        else:
            if not await restore_view(view, self._views, self._artifacts):
                raise TaskUnknownError(task_id)
            views_rebuilt.add(1)
            _log.info("task view restored", **task_fields(view))
        return await self._load(task_id) or Snapshot(view, START)

    async def _has_gone_on(self, task_id: str) -> bool:
        """Whether a stream without its view tells of a status: how the task began would contradict it."""
        page = await self._views.read({task_id: START}, wait=0)
        return any(isinstance(streamed.event, StatusChanged) for streamed in page)


def refuse_if_read_only(task_id: str) -> None:
    """Refuse to change the task of a sub-agent.

    Raises:
        TaskReadOnlyError: it is one.
    """
    if names.is_child_task_id(task_id):
        raise TaskReadOnlyError(task_id, names.root_task_id(task_id))


def held_by(state: MutableMapping[str, Any]) -> ExitStack:
    """Return what a call holds until its answer is out; whoever serves it closes this."""
    return state.setdefault(HELD, ExitStack())
