"""Task views that notify push deliveries of each new status."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog
from structlog.typing import FilteringBoundLogger

from everloop.stores.leases import Lease
from everloop.stores.push.configs import PushConfigs
from everloop.stores.views.interface import (
    OpenTask,
    Snapshot,
    StreamedEvent,
    TaskPage,
    TaskQuery,
    TaskViews,
    ViewArtifact,
    WaitingPage,
    WaitingQuery,
)
from everloop.workflows.contract.events import StatusChanged, TaskEvent
from everloop.workflows.contract.tasks import Route, TaskState, TaskView

Notify = Callable[[str, Sequence[str]], Awaitable[None]]
"""Takes a task id and the ids of its push notification configs; raises NotificationError if it cannot."""

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class NotificationError(Exception):
    """Temporal does not answer. Publish the status again."""


class NotifyingTaskViews(TaskViews):
    """Calls `notify` after a status was published, where a task has push notification configs.

    Whoever publishes for a workflow does so again after a failure, or when somebody died in between. Who puts
    a view right finds nothing to do then, so `end` and `restore` call it before as well: from then on a
    delivery runs, and looks at the task within minutes by itself. Of a status that only passes, a failure is
    no reason to publish it again: the next one brings it along. Other events cost nothing.
    """

    def __init__(self, inner: TaskViews, configs: PushConfigs, notify: Notify) -> None:
        super().__init__(inner.max_bytes)
        self._inner = inner
        self._configs = configs
        self._notify = notify

    async def create(self, view: TaskView) -> None:
        await self._inner.create(view)

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        taken = await self._inner.publish(task_id, run_id, events, lease)
        states = [event.state for event in events if isinstance(event, StatusChanged)]
        if states:
            await self._notify_deliveries(task_id, await self._configs.config_ids(task_id), states)
        return taken

    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        async with self._notifying(task_id, status.state):
            return await self._inner.end(task_id, run_id, status)

    async def restore(self, view: TaskView) -> None:
        async with self._notifying(view.task_id, view.status.state):
            await self._inner.restore(view)

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        return await self._inner.load(task_id, most=most, history_length=history_length)

    async def size(self, task_id: str) -> int:
        return await self._inner.size(task_id)

    async def state(self, task_id: str) -> TaskState | None:
        return await self._inner.state(task_id)

    async def list_open(self, first: int, count: int) -> Sequence[OpenTask]:
        return await self._inner.list_open(first, count)

    async def keep_route(self, task_id: str, route: Route) -> None:
        await self._inner.keep_route(task_id, route)

    async def route(self, task_id: str) -> Route | None:
        return await self._inner.route(task_id)

    async def artifact(self, task_id: str, artifact_id: str) -> ViewArtifact | None:
        return await self._inner.artifact(task_id, artifact_id)

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        return await self._inner.read(positions, wait=wait, limit=limit)

    async def wake(self) -> None:
        await self._inner.wake()

    async def holds(self, task_id: str, position: str) -> bool:
        return await self._inner.holds(task_id, position)

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        return await self._inner.list_tasks(query)

    async def list_waiting(self, query: WaitingQuery) -> WaitingPage:
        return await self._inner.list_waiting(query)

    @asynccontextmanager
    async def _notifying(self, task_id: str, state: TaskState) -> AsyncGenerator[None]:
        config_ids = await self._configs.config_ids(task_id)
        await self._notify_deliveries(task_id, config_ids, [state])
        yield
        await self._notify_deliveries(task_id, config_ids)

    async def _notify_deliveries(
        self, task_id: str, config_ids: Sequence[str], states: Sequence[TaskState] = ()
    ) -> None:
        """Notify the deliveries of a task; that this failed matters where one of the states does."""
        try:
            if config_ids:
                await self._notify(task_id, config_ids)
        except NotificationError as error:
            if any(state.is_terminal or state.is_interrupted for state in states):
                raise
            _log.warning(
                "push deliveries not notified of a status", task_id=task_id, error=str(error.__cause__)
            )
