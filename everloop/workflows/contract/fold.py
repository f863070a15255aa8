"""The fold: the changes of a task's view by the entries of its log. Pure.

The store refuses old events (`stores/log/append.lua`), so every entry counts, and none is dropped here:

- An entry comes from a run. After a status or a chunk, the view follows its run.
- A status replaces the one before. The replaced status's message goes to the history, unless its step is
  above 0 (such a note is not part of the conversation), then the messages that the task has received. The
  history has each message id once.
- A terminal status other than completed marks every artifact that is not complete as failed.
- A chunk of index 0 begins an artifact in place of one of the same id, or extends it, depending on its mode;
  other chunks are appended. An empty text adds nothing, except as the only part of an artifact. A last chunk
  with `content` replaces all parts.
- `task-created` adds identity and first messages, before all messages that were published earlier.
- All other kinds change nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import with_config

from everloop.workflows.contract.events import (
    FINAL_ATTEMPT,
    ArtifactChunk,
    StatusChanged,
    TaskCreated,
    TaskEvent,
    content_of,
)
from everloop.workflows.contract.messages import EMPTY, Message, Part, join_texts
from everloop.workflows.contract.payloads import HIDE_VALUES, Wire
from everloop.workflows.contract.tasks import Artifact, ForkOrigin, TaskState, TaskStatus, TaskView

RESTORED_POSITION = -1
"""Position of an artifact that was restored: before every one that a worker writes."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_AT_WORK = frozenset({TaskState.SUBMITTED, TaskState.WORKING})


class TaskIdentity(Wire):
    """The static part of a view, which does not change after the creation of the task."""

    task_id: str
    context_id: str
    owner: str
    agent_id: str
    created_at: datetime
    fork: ForkOrigin | None = None


@with_config(HIDE_VALUES)
@dataclass(frozen=True)
class FoldedArtifact:
    """The published part of an artifact, and the draft of its last chunk."""

    name: str
    description: str
    position: int
    attempt: int
    run_id: str = ""
    parts: tuple[Part, ...] = ()
    complete: bool = False
    failed: bool = False


@with_config(HIDE_VALUES)
@dataclass(frozen=True)
class FoldedView:
    """The fold of the entries of a log, up to some position."""

    identity: TaskIdentity | None = None
    run_id: str | None = None
    """The run that the view follows."""
    runs: tuple[str, ...] = ()
    """All runs that the view has followed."""
    status: StatusChanged | None = None
    status_run: str = ""
    """The run that published the status."""
    history: Mapping[str, Message] = field(default_factory=dict[str, Message])
    artifacts: Mapping[str, FoldedArtifact] = field(default_factory=dict[str, FoldedArtifact])


@dataclass(frozen=True)
class LogEntry:
    """An event, the run that published it, and for `task-created` the first view of the task."""

    run_id: str
    event: TaskEvent
    opening: TaskView | None = None


def fold(view: FoldedView, entry: LogEntry) -> FoldedView:
    """Return the view after an entry."""
    match entry.event:
        case StatusChanged():
            return _with_status(_following(view, entry.run_id), entry.run_id, entry.event)
        case ArtifactChunk():
            return _with_chunk(_following(view, entry.run_id), entry.run_id, entry.event)
        case TaskCreated() if entry.opening:
            return _opened(view, entry.opening)
        case _:
            return view


def task_view(view: FoldedView) -> TaskView | None:
    """Return the task as clients see it, or None while its static part or its status is missing."""
    if view.identity is None or view.status is None:
        return None
    status = {name: value for name, value in view.status if name in TaskStatus.model_fields}
    return TaskView(
        **dict(view.identity),
        run_id=view.status_run,
        version=view.status.version,
        status=TaskStatus(**status),
        history=tuple(view.history.values()),
        artifacts=tuple(artifact_of(id_, artifact) for id_, artifact in view.artifacts.items()),
    )


def artifact_of(artifact_id: str, artifact: FoldedArtifact) -> Artifact:
    """Return an artifact as clients see it."""
    return Artifact(
        artifact_id=artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=join_texts(artifact.parts),
        complete=artifact.complete,
        failed=artifact.failed,
    )


def is_newer(view: FoldedView, run_id: str, status: StatusChanged) -> bool:
    """Return True if a status read from a run is newer than the status of the view.

    For a run that the view has never followed, the times decide: the status may have been read long ago.
    """
    last = view.status
    if last is None:
        return True
    if run_id == view.run_id:
        return run_id != view.status_run or (status.version, status.step) > (last.version, last.step)
    if run_id in view.runs:
        return False
    return view.run_id is None or microseconds(status.at) > microseconds(last.at)


def restored(view: FoldedView, answer: TaskView) -> tuple[FoldedView, Sequence[TaskEvent]]:
    """Return a view with the newer parts of its workflow's answer, and the events that publish them.

    Artifacts that a worker is writing are replaced only by the answer of a task that is not at work. The
    status is the last event, because subscribers get no events after an end.
    """
    status = status_of(answer)
    applies = is_newer(view, answer.run_id, status)
    last = view.status
    rests_again = last is not None and _is_current(view, answer.run_id, status) and not is_at_work(last.state)
    history = [*answer.history]
    if (
        last
        and answer.run_id == view.status_run
        and status.message
        and not applies
        and _message_id(last) != _message_id(status)
    ):
        history.append(status.message)  # a newer status replaced it before it was published
    view = replace(
        view,
        identity=view.identity or identity_of(answer),
        history=_by_id([*history, *view.history.values()]),
    )
    if applies and (view.run_id is None or view.status is not None):
        view = _following(view, answer.run_id)
    replaces_drafts = applies and not is_at_work(status.state)
    events: list[TaskEvent] = []
    for artifact in answer.artifacts:
        folded = view.artifacts.get(artifact.artifact_id)
        if folded and not _is_missing(
            artifact, answer.run_id, folded, replaces_drafts=replaces_drafts, rests_again=rests_again
        ):
            continue
        chunks = chunks_of(artifact)
        for chunk in chunks:
            view = _with_chunk(view, answer.run_id, chunk)
        events += chunks
    if applies:
        view = _with_status(view, answer.run_id, status)
        events.append(status)
    return view, events


def _is_current(view: FoldedView, run_id: str, status: StatusChanged) -> bool:
    last = view.status
    is_same = last is not None and (status.version, status.step) == (last.version, last.step)
    return is_same and run_id == view.status_run


def _is_missing(
    artifact: Artifact, run_id: str, folded: FoldedArtifact, *, replaces_drafts: bool, rests_again: bool
) -> bool:
    """Return True if a view lacks this artifact, although it has one of this id."""
    if artifact.position is not None:  # the answer, from the transcript
        is_later = folded.run_id == run_id and folded.position >= artifact.position
        return not (folded.complete and is_later)
    may_replace = replaces_drafts or (rests_again and folded.position >= 0)
    return may_replace and not folded.complete


def _following(view: FoldedView, run_id: str) -> FoldedView:
    if not run_id or view.run_id == run_id:
        return view
    runs = view.runs if run_id in view.runs else (*view.runs, run_id)
    return replace(view, run_id=run_id, runs=runs)


def _with_status(view: FoldedView, run_id: str, status: StatusChanged) -> FoldedView:
    last = view.status
    replaced = [last.message] if last and last.message and last.step == 0 else []
    artifacts = view.artifacts
    if fails_drafts(status.state):
        artifacts = {id_: replace(each, failed=not each.complete) for id_, each in artifacts.items()}
    return replace(
        view,
        status=status,
        status_run=run_id,
        history=_by_id([*view.history.values(), *replaced, *status.received]),
        artifacts=artifacts,
    )


def _with_chunk(view: FoldedView, run_id: str, chunk: ArtifactChunk) -> FoldedView:
    before = view.artifacts.get(chunk.artifact_id)
    if before is None and chunk.index:
        return view  # it was deleted meanwhile
    if before is None or (chunk.index == 0 and chunk.mode != "extend"):
        before = FoldedArtifact(chunk.name, chunk.description, chunk.position, chunk.attempt)
    parts = before.parts if before.parts and chunk.part == EMPTY else (*before.parts, chunk.part)
    after = replace(
        before,
        position=chunk.position,
        attempt=chunk.attempt,
        run_id=run_id,
        parts=chunk.content or parts,
        complete=chunk.last_chunk,
        failed=chunk.failed,
    )
    return replace(view, artifacts={**view.artifacts, chunk.artifact_id: after})


def _opened(view: FoldedView, opening: TaskView) -> FoldedView:
    return replace(
        view,
        identity=view.identity or identity_of(opening),
        status=view.status or status_of(opening),
        status_run=view.status_run if view.status else opening.run_id,
        history=_by_id([*opening.history, *view.history.values()]),
    )


def _message_id(status: StatusChanged) -> str | None:
    return status.message and status.message.message_id


def _by_id(messages: Iterable[Message]) -> dict[str, Message]:
    first: dict[str, Message] = {}
    for message in messages:
        first.setdefault(message.message_id, message)
    return first


def identity_of(view: TaskView) -> TaskIdentity:
    """Return the static part of a view."""
    return TaskIdentity.model_validate(view, from_attributes=True)


def status_of(view: TaskView) -> StatusChanged:
    """Return the event that gives a task the status of this view."""
    return StatusChanged(version=view.version, **dict(view.status))


def chunks_of(artifact: Artifact) -> list[ArtifactChunk]:
    """Return the events that write this artifact as a whole, one for each part."""
    last = len(artifact.parts) - 1
    position = RESTORED_POSITION if artifact.position is None else artifact.position
    return [
        ArtifactChunk(
            artifact_id=artifact.artifact_id,
            name=artifact.name,
            description=artifact.description,
            position=position,
            attempt=FINAL_ATTEMPT,
            index=index,
            part=part,
            last_chunk=artifact.complete and index == last,
            failed=artifact.failed and index == last,
            content=content_of(artifact.parts) if artifact.complete and index == last > 0 else (),
        )
        for index, part in enumerate(artifact.parts)
    ]


def microseconds(at: datetime) -> int:
    """Return microseconds since the epoch, by which lists sort tasks."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def fails_drafts(state: TaskState) -> bool:
    """Return True if this state makes incomplete drafts fail."""
    return state.is_terminal and state is not TaskState.COMPLETED


def is_at_work(state: TaskState) -> bool:
    """Return True if a task in this state neither waits for people nor has ended."""
    return state in _AT_WORK
