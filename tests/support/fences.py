"""The fences of a log in Python, which drop old events. `append.lua` has the same rules in Redis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from everloop.workflows.contract.events import ArtifactChunk, Narrated, StatusChanged, TaskCreated, TaskEvent
from everloop.workflows.contract.fold import (
    FoldedView,
    LogEntry,
    fails_drafts,
    fold,
    is_at_work,
    is_newer,
    restored,
    task_view,
)
from everloop.workflows.contract.tasks import TaskState, TaskView


@dataclass(frozen=True)
class _Draft:
    run_id: str
    place: tuple[int, int]
    next_index: int
    state: str = "open"


class FencedTask:
    """A task by the fences. Each method returns the appended events."""

    def __init__(self) -> None:
        self._view = FoldedView()
        self._drafts: dict[str, _Draft] = {}

    @property
    def view(self) -> TaskView | None:
        """The view, or None while its static part is missing."""
        return task_view(self._view)

    @property
    def state(self) -> TaskState | None:
        """The state, or None while there is no status."""
        return self._view.status.state if self._view.status else None

    def create(self, view: TaskView) -> list[TaskEvent]:
        if self._view.identity:
            return []
        return self._append(view.run_id, TaskCreated(), view)

    def publish(self, run_id: str, events: Sequence[TaskEvent]) -> list[TaskEvent]:
        if run_id != self._view.run_id and run_id in self._view.runs:
            return []
        appended: list[TaskEvent] = []
        for event in events:
            if self._is_new(run_id, event):
                appended += self._append(run_id, event)
        return appended

    def end(self, run_id: str, status: StatusChanged) -> list[TaskEvent]:
        run_id, last = run_id or self._view.run_id or "", self._view.status
        if not self._view.identity or not last or last.state.is_terminal:
            return []
        if not is_newer(self._view, run_id, status):
            return []
        return self._append(run_id, status)

    def restore(self, view: TaskView) -> list[TaskEvent]:
        self._view, events = restored(self._view, view)
        for event in events:
            self._note(view.run_id, event)
        return list(events)

    def _append(self, run_id: str, event: TaskEvent, opening: TaskView | None = None) -> list[TaskEvent]:
        self._view = fold(self._view, LogEntry(run_id, event, opening))
        self._note(run_id, event)
        return [event]

    def _note(self, run_id: str, event: TaskEvent) -> None:
        if isinstance(event, ArtifactChunk):
            state = "complete" if event.last_chunk else "failed" if event.failed else "open"
            place = event.position, event.attempt
            self._drafts[event.artifact_id] = _Draft(run_id, place, event.index + 1, state)
        elif isinstance(event, StatusChanged) and fails_drafts(event.state):
            for name, draft in self._drafts.items():
                self._drafts[name] = replace(draft, state="failed") if draft.state == "open" else draft

    def _is_new(self, run_id: str, event: TaskEvent) -> bool:
        last = self._view.status
        match event:
            case StatusChanged():
                is_same_run = last and self._view.status_run == run_id
                return not (last and is_same_run) or (event.version, event.step) > (last.version, last.step)
            case ArtifactChunk():
                return self._is_new_chunk(run_id, event)
            case Narrated():
                return last is None or is_at_work(last.state)
            case _:
                return True

    def _is_new_chunk(self, run_id: str, chunk: ArtifactChunk) -> bool:
        draft, place = self._drafts.get(chunk.artifact_id), (chunk.position, chunk.attempt)
        if draft is None:
            return chunk.index == 0 and chunk.mode != "extend"
        is_same_run = draft.run_id == run_id
        if is_same_run and (draft.place, draft.next_index, draft.state) == (place, chunk.index, "open"):
            return True
        if chunk.index > 0 or (is_same_run and place <= draft.place):
            return False
        if chunk.mode == "extend":
            return draft.state == "open"
        is_there = is_same_run and draft.place[0] == chunk.position
        return not (chunk.mode == "draft" and is_there and draft.state == "complete")
