"""The fold: how events change the view of their task. The rules stand in `workflows.contract.events`.

`task_views.lua` does the same inside Redis; a property test holds the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from everloop.stores.views.interface import ViewArtifact
from everloop.stores.views.parts import (
    TaskIdentity,
    chunks_of,
    fails_drafts,
    identity_of,
    is_at_work,
    microseconds,
    status_of,
    view_of,
)
from everloop.workflows.contract.events import ArtifactChunk, Narrated, StatusChanged, TaskCreated, TaskEvent
from everloop.workflows.contract.messages import EMPTY, Message, Part, join_texts
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskView


@dataclass
class _Draft:
    """The current draft of an artifact; `next_index` is that of the chunk that continues it."""

    run_id: str
    position: int
    attempt: int
    name: str
    description: str
    parts: list[Part] = field(default_factory=list[Part])
    next_index: int = 0
    complete: bool = False
    failed: bool = False

    def followed_by(self, run_id: str, chunk: ArtifactChunk) -> "_Draft | None":
        """Return the draft that the chunk is to be appended to: this one or a newer one; None drops it."""
        if self._is_continued_by(run_id, chunk):
            return self
        if chunk.index != 0 or not self._is_overtaken_by(run_id, chunk):
            return None
        match chunk.mode:
            case "extend":
                if self.complete or self.failed:
                    return None
                return replace(
                    self, run_id=run_id, position=chunk.position, attempt=chunk.attempt, next_index=0
                )
            case "draft" if self.complete and (self.run_id, self.position) == (run_id, chunk.position):
                return None
            case _:
                return _begin(run_id, chunk)

    def append(self, chunk: ArtifactChunk) -> None:
        if not (self.parts and chunk.part == EMPTY):
            self.parts.append(chunk.part)
        self.next_index += 1
        self.complete, self.failed = chunk.last_chunk, chunk.failed

    def _is_continued_by(self, run_id: str, chunk: ArtifactChunk) -> bool:
        is_same = (self.run_id, self.position, self.attempt) == (run_id, chunk.position, chunk.attempt)
        return is_same and not (self.complete or self.failed) and chunk.index == self.next_index

    def _is_overtaken_by(self, run_id: str, chunk: ArtifactChunk) -> bool:
        is_newer = (chunk.position, chunk.attempt) > (self.position, self.attempt)
        return is_newer or self.run_id != run_id


def _begin(run_id: str, chunk: ArtifactChunk) -> _Draft:
    return _Draft(run_id, chunk.position, chunk.attempt, chunk.name, chunk.description)


class FoldedTask:
    """One task: its view in pieces, and what tells new events from old ones.

    Each method returns the events that it let through, which is what belongs in the stream.
    """

    def __init__(self) -> None:
        self._identity: TaskIdentity | None = None
        self._run_id: str | None = None
        self._seen_runs: set[str] = set()
        self._status: StatusChanged | None = None
        self._status_run = ""
        self._history: dict[str, Message] = {}
        self._drafts: dict[str, _Draft] = {}

    @property
    def view(self) -> TaskView | None:
        """The view, or None while its static part is missing."""
        if self._identity is None or self._status is None:
            return None
        artifacts = [_artifact_of(artifact_id, draft) for artifact_id, draft in self._drafts.items()]
        return view_of(self._identity, self._status_run, self._status, self._history.values(), artifacts)

    @property
    def state(self) -> TaskState | None:
        """The state, or None while there is no status."""
        return self._status.state if self._status else None

    def artifact(self, artifact_id: str) -> ViewArtifact | None:
        """Return an artifact as it is shown, or None."""
        draft = self._drafts.get(artifact_id)
        return draft and ViewArtifact(_artifact_of(artifact_id, draft), draft.position, draft.attempt)

    def publish(self, run_id: str, events: Sequence[TaskEvent]) -> list[TaskEvent]:
        """Fold in the events of a run."""
        if run_id != self._run_id and run_id in self._seen_runs:
            return []
        return [event for event in events if self._fold(run_id, event)]

    def end(self, run_id: str, status: StatusChanged) -> list[TaskEvent]:
        """Fold in the last status of a run that does not say it itself; nothing if the view says an end.

        As with `restore`, a run that was never seen is newer only if its status is. Without a run id it is
        the run that the view follows.
        """
        run_id = run_id or self._run_id or ""
        is_open = self._identity and self._status and not self._status.state.is_terminal
        if not is_open or not self._is_news(run_id, status):
            return []
        if run_id:
            self._take_over(run_id)
        self._set_status(run_id, status)
        return [status]

    def create(self, view: TaskView) -> list[TaskEvent]:
        """Fill in the static part, and the status if there is none; nothing if the view is whole."""
        if self._identity:
            return []
        self._identity = identity_of(view)
        self._put_before_history(view.history)
        if self._status is None:
            self._set_status(view.run_id, status_of(view))
        return [TaskCreated()]

    @property
    def takes_forwarded(self) -> bool:
        """Whether events of sub-agents reach the stream of this task: it is known, and has not ended."""
        return self._status is not None and not self._status.state.is_terminal

    def restore(self, view: TaskView) -> list[TaskEvent]:
        """Fold in a whole view, except where it is older than what stands here.

        A run that was never seen is newer than one that was if its status is: a view may have been
        asked for long before it arrives. Drafts of what a store holds are replaced only by a view of a task
        that rests and is not older; while it works, the worker that writes the draft also completes it.
        """
        status = status_of(view)
        applies = self._is_news(view.run_id, status)
        self._identity = self._identity or identity_of(view)
        self._put_before_history([*view.history, *self._missed_message(view.run_id, status, applies=applies)])
        if applies and (self._run_id is None or self._status is not None):
            self._take_over(view.run_id)
        restored: list[TaskEvent] = []
        is_again = self._is_current(view.run_id, status) and not (self.state and is_at_work(self.state))
        replaces_drafts = applies and not is_at_work(view.status.state)
        for artifact in view.artifacts:
            restored += self._restore_artifact(
                view.run_id, artifact, replaces_drafts=replaces_drafts, is_again=is_again
            )
        if applies:
            # Last: followers hear nothing after a terminal status.
            self._set_status(view.run_id, status)
            restored.append(status)
        return restored

    def _take_over(self, run_id: str) -> None:
        self._seen_runs.add(run_id)
        self._run_id = run_id

    def _fold(self, run_id: str, event: TaskEvent) -> bool:
        match event:
            case StatusChanged():
                self._take_over(run_id)
                return self._fold_status(run_id, event)
            case ArtifactChunk():
                return self._fold_chunk(run_id, event)
            case Narrated():
                return self._status is None or is_at_work(self._status.state)
            case _:
                # A gateway may publish these for a run that is older than the one it has not heard of yet.
                return True

    def _fold_status(self, run_id: str, status: StatusChanged) -> bool:
        if not self._is_news(run_id, status):
            return False
        self._set_status(run_id, status)
        return True

    def _is_news(self, run_id: str, status: StatusChanged) -> bool:
        last = self._status
        if last is None:
            return True
        if run_id == self._run_id:
            is_first = run_id != self._status_run
            return is_first or (status.version, status.step) > (last.version, last.step)
        if run_id in self._seen_runs:
            return False
        return self._run_id is None or microseconds(status.at) > microseconds(last.at)

    def _is_current(self, run_id: str, status: StatusChanged) -> bool:
        last = self._status
        is_same = last is not None and (status.version, status.step) == (last.version, last.step)
        return is_same and run_id == self._status_run

    def _set_status(self, run_id: str, status: StatusChanged) -> None:
        if self._status and self._status.message and self._status.step == 0:
            self._remember(self._status.message)
        for message in status.received:
            self._remember(message)
        self._status, self._status_run = status, run_id
        if fails_drafts(status.state):
            for draft in self._drafts.values():
                draft.failed = not draft.complete

    def _remember(self, message: Message) -> None:
        self._history.setdefault(message.message_id, message)

    def _put_before_history(self, messages: Sequence[Message]) -> None:
        first: dict[str, Message] = {}
        for message in [*messages, *self._history.values()]:
            first.setdefault(message.message_id, message)
        self._history = first

    def _missed_message(self, run_id: str, status: StatusChanged, *, applies: bool) -> list[Message]:
        """Return the message of a status that a newer one of its run replaced before it was seen here."""
        if applies or self._status is None or status.message is None or run_id != self._status_run:
            return []
        is_current = self._status.message and self._status.message.message_id == status.message.message_id
        return [] if is_current else [status.message]

    def _fold_chunk(self, run_id: str, chunk: ArtifactChunk) -> bool:
        current = self._drafts.get(chunk.artifact_id)
        if current:
            draft = current.followed_by(run_id, chunk)
        else:
            draft = _begin(run_id, chunk) if chunk.index == 0 and chunk.mode != "extend" else None
        if draft is None:
            return False
        self._take_over(run_id)
        draft.append(chunk)
        self._drafts[chunk.artifact_id] = draft
        return True

    def _restore_artifact(
        self, run_id: str, artifact: Artifact, *, replaces_drafts: bool, is_again: bool
    ) -> list[ArtifactChunk]:
        draft, position = self._drafts.get(artifact.artifact_id), artifact.position
        if position is None:
            is_replaced = replaces_drafts or (is_again and draft and draft.position >= 0)
            if draft and (draft.complete or not is_replaced):
                return []
        elif draft and draft.complete and draft.run_id == run_id and draft.position >= position:
            return []
        chunks = chunks_of(artifact)
        if chunks:
            draft = _begin(run_id, chunks[0])
            for chunk in chunks:
                draft.append(chunk)
            self._drafts[artifact.artifact_id] = draft
        return chunks


def _artifact_of(artifact_id: str, draft: _Draft) -> Artifact:
    return Artifact(
        artifact_id=artifact_id,
        name=draft.name,
        description=draft.description,
        parts=join_texts(draft.parts),
        complete=draft.complete,
        failed=draft.failed,
    )
