"""Task views and event streams in memory, for tests: what they compare the real store with."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise

from everloop.stores.retention import MAX_TASK_BYTES
from everloop.stores.steps import Lease, Step
from everloop.stores.views.interface import (
    MAX_PAGE_BYTES,
    START,
    IndexEntry,
    OpenTask,
    Published,
    Snapshot,
    StreamedEvent,
    TaskPage,
    TaskQuery,
    ViewArtifact,
    ViewStatus,
    WaitingPage,
    WaitingQuery,
    WaitingTask,
    decode_page_token,
    encode_page_token,
    position_order,
)
from everloop.stores.views.parts import MAX_EVENTS, forwarded, microseconds, scopes_of
from everloop.stores.views.store import TaskViews
from everloop.workflows.contract.events import RESPONSE_ARTIFACT, StatusChanged, TaskEvent
from everloop.workflows.contract.names import is_child_task_id, root_task_id
from everloop.workflows.contract.tasks import Route, TaskState, TaskView
from tests.support.memory.fold import FoldedTask
from tests.support.memory.steps import MemorySteps, memory_step


@dataclass
class _StoredTask:
    """`events` are those that are kept; `published` counts all there ever were."""

    events: deque[StreamedEvent]
    published: int = 0
    folded: FoldedTask = field(default_factory=FoldedTask)


class MemoryTaskViews(TaskViews):
    """Keeps everything until the process ends. `max_events` is what a stream keeps (default 10,000).

    Leases are not looked at: no attempt outlives the process that all are in.
    """

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_TASK_BYTES) -> None:
        self.max_bytes = max_bytes
        self.steps = MemorySteps()
        self._tasks: defaultdict[str, _StoredTask] = defaultdict(
            lambda: _StoredTask(deque(maxlen=max_events))
        )
        self._routes: dict[str, Route] = {}
        self._changed = asyncio.Condition()
        self._is_woken = False

    async def create(self, view: TaskView) -> None:
        await self._append(view.task_id, self._tasks[view.task_id].folded.create(view))

    async def begin(self, view: TaskView, *, most: int) -> Snapshot | None:
        await self.create(view)
        return await self.load(view.task_id, most=most)

    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        if not events:
            return ()
        folded = self._tasks[task_id].folded
        before = folded.state
        told = folded.publish(run_id, events)
        states = [event.state for event in told if isinstance(event, StatusChanged)]
        await self._append(task_id, told)
        return [state for last, state in pairwise([before, *states]) if state and state is not last]

    def publishing(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Step[Published]:
        async def publish() -> Published:
            return Published(tuple(await self.publish(task_id, run_id, events, lease)))

        return memory_step(task_id, publish)

    def publishing_bare(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent]
    ) -> Step[Published | None]:
        async def publish() -> Published | None:
            if await self.artifacts_seen(task_id):
                return None
            return Published(tuple(await self.publish(task_id, run_id, events)))

        return memory_step(task_id, publish)

    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        told = self._tasks[task_id].folded.end(run_id, status)
        await self._append(task_id, told)
        return bool(told)

    async def restore(self, view: TaskView) -> None:
        await self._append(view.task_id, self._tasks[view.task_id].folded.restore(view))

    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        task = self._tasks.get(task_id)
        view = task.folded.view if task else None
        if task is None or view is None:
            return None
        position = task.events[-1].position if task.events else START
        wanted = _with_newest(view, history_length)
        size = _size(wanted)
        if most is None or size <= most:
            return Snapshot(wanted, position, size)
        ids = frozenset(message.message_id for message in view.history)
        return Snapshot(_bare(view), position, size, left_out=ids)

    async def size(self, task_id: str) -> int:
        snapshot = await self.load(task_id)
        return snapshot.size if snapshot else 0

    async def state(self, task_id: str) -> TaskState | None:
        snapshot = await self.load(task_id)
        return snapshot.view.status.state if snapshot else None

    async def states(self, task_ids: Sequence[str]) -> Mapping[str, ViewStatus]:
        known = {view.task_id: view for view in self._views() if view.task_id in task_ids}
        return {
            task_id: ViewStatus(view.status.state, view.run_id, view.version)
            for task_id, view in known.items()
        }

    async def list_open(self, first: int, count: int) -> Sequence[OpenTask]:
        views = sorted(
            (v for v in self._views() if not (v.status.state.is_terminal or is_child_task_id(v.task_id))),
            key=lambda view: view.status.at,
        )
        return [
            OpenTask(view.task_id, view.status.state, view.run_id, view.version, view.status.at.timestamp())
            for view in views[first : first + count]
        ]

    async def keep_route(self, task_id: str, route: Route) -> None:
        self._routes[task_id] = route

    async def find(self, task_id: str, *, most: int) -> tuple[Route | None, Snapshot | None]:
        return self._routes.get(task_id), await self.load(task_id, most=most)

    async def artifacts_seen(self, task_id: str) -> Mapping[str, bool] | None:
        snapshot = await self.load(task_id)
        shown = snapshot.view.artifacts if snapshot else ()
        seen = {each.artifact_id: each.complete for each in shown if each.artifact_id != RESPONSE_ARTIFACT}
        return seen if snapshot else None

    async def artifact(self, task_id: str, artifact_id: str) -> ViewArtifact | None:
        return self._tasks[task_id].folded.artifact(artifact_id) if task_id in self._tasks else None

    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        async with self._changed:
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait_for(lambda: self._is_woken or self._unread(positions, 1))
            except TimeoutError:
                pass
            self._is_woken = False
        return self._unread(positions, limit)

    async def wake(self) -> None:
        self._is_woken = True
        async with self._changed:
            self._changed.notify_all()

    async def holds(self, task_id: str, position: str) -> bool:
        if task_id not in self._tasks:
            return False
        task = self._tasks[task_id]
        if position == START:
            return len(task.events) == task.published > 0
        return any(event.position == position for event in task.events)

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        matching = sorted(
            ((_entry_of(view), view) for view in self._views() if _matches(view, query)),
            key=lambda pair: pair[0],
            reverse=True,
        )
        after = decode_page_token(query.page_token)
        rest = [pair for pair in matching if after is None or pair[0] < after]
        wanted = [(entry, _as_wanted(view, query)) for entry, view in rest[: query.page_size]]
        left_out = {view.task_id: size for _, view in wanted if (size := _size(view)) > MAX_PAGE_BYTES}
        page = _fitting([(entry, _bare(v) if v.task_id in left_out else v) for entry, v in wanted])
        return TaskPage(
            views=tuple(view for _, view in page),
            total=len(matching),
            next_page_token=encode_page_token(page[-1][0]) if len(rest) > len(page) else "",
            left_out={view.task_id: left_out[view.task_id] for _, view in page if view.task_id in left_out},
        )

    async def list_waiting(self, query: WaitingQuery) -> WaitingPage:
        after = decode_page_token(query.page_token)
        waiting = sorted(
            (IndexEntry(microseconds(view.status.at), f"{view.task_id} {scope}"), WaitingTask(view, scope))
            for view in self._views()
            if not is_child_task_id(view.task_id)
            for scope in set(scopes_of(view.status.questions)) & set(query.scopes)
        )
        rest = [(entry, task) for entry, task in waiting if after is None or entry > after]
        page = rest[: query.page_size]
        more = len(rest) > len(page)
        return WaitingPage(
            tuple(WaitingTask(_bare(task.view), task.scope) for _, task in page),
            encode_page_token(page[-1][0]) if more else "",
        )

    def open_tasks(self, owner: str) -> set[str]:
        """Return the ids of an owner's tasks that have not ended, without those of sub-agents."""
        return {
            view.task_id
            for view in self._views()
            if view.owner == owner and not (view.status.state.is_terminal or is_child_task_id(view.task_id))
        }

    async def _append(self, task_id: str, events: Sequence[TaskEvent]) -> None:
        self._add(task_id, events)
        root_id = root_task_id(task_id)
        if root_id in self._tasks and self._tasks[root_id].folded.takes_forwarded:
            self._add(root_id, [told for event in events if (told := forwarded(task_id, event))])
        async with self._changed:
            self._changed.notify_all()

    def _add(self, task_id: str, events: Iterable[TaskEvent]) -> None:
        task = self._tasks[task_id]
        for event in events:
            task.published += 1
            task.events.append(StreamedEvent(task_id, f"{task.published}-0", event))

    def _unread(self, positions: Mapping[str, str], limit: int) -> list[StreamedEvent]:
        unread: list[StreamedEvent] = []
        for task_id, position in positions.items():
            if task_id in self._tasks:
                read = position_order(position)
                events = self._tasks[task_id].events
                unread += islice((e for e in events if position_order(e.position) > read), limit)
        return unread

    def _views(self) -> list[TaskView]:
        return [view for task in self._tasks.values() if (view := task.folded.view)]


def _entry_of(view: TaskView) -> IndexEntry:
    return IndexEntry(microseconds(view.status.at), view.task_id)


def _matches(view: TaskView, query: TaskQuery) -> bool:
    oldest = query.updated_since
    return (
        (view.owner, view.agent_id) == (query.owner, query.agent_id)
        and query.context_id in {None, view.context_id}
        and query.state in {None, view.status.state}
        and (oldest is None or microseconds(view.status.at) >= oldest)
    )


def _fitting(page: Sequence[tuple[IndexEntry, TaskView]]) -> Sequence[tuple[IndexEntry, TaskView]]:
    """Return as much of a page as its bytes allow."""
    sizes = accumulate(_size(view) for _, view in page)
    return page[: max(1, sum(size <= MAX_PAGE_BYTES for size in sizes))]


def _as_wanted(view: TaskView, query: TaskQuery) -> TaskView:
    wanted = _with_newest(view, query.with_history)
    return wanted if query.with_artifacts else wanted.model_copy(update={"artifacts": ()})


def _with_newest(view: TaskView, history_length: int | None) -> TaskView:
    if history_length is None or history_length >= len(view.history):
        return view
    return view.model_copy(update={"history": view.history[len(view.history) - history_length :]})


def _bare(view: TaskView) -> TaskView:
    return view.model_copy(update={"history": (), "artifacts": ()})


def _size(view: TaskView) -> int:
    return len(view.model_dump_json().encode())
