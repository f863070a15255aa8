"""Takes task views to pieces, as stores keep them, and puts them together again."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from everloop.workflows.contract.events import (
    FINAL_ATTEMPT,
    ArtifactChunk,
    StatusChanged,
    SubAgentEvent,
    TaskCreated,
    TaskEvent,
    content_of,
)
from everloop.workflows.contract.messages import Message
from everloop.workflows.contract.names import child_path, is_child_task_id
from everloop.workflows.contract.parts import is_sendable
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.questions import Question
from everloop.workflows.contract.tasks import Artifact, ForkOrigin, TaskState, TaskStatus, TaskView

MAX_EVENTS = 10_000
"""How many events of a task its stream keeps, about."""

RESTORED_POSITION = -1
"""Position of a draft that was restored: before every draft that a worker writes."""


_EPOCH = datetime.fromtimestamp(0, UTC)
_AT_WORK = frozenset({TaskState.SUBMITTED, TaskState.WORKING})


class TaskIdentity(Wire):
    """The static part of a view: what never changes once the task exists."""

    task_id: str
    context_id: str
    owner: str
    agent_id: str
    created_at: datetime
    fork: ForkOrigin | None = None


def scopes_of(questions: Iterable[Question]) -> list[str]:
    """Return the scopes whose holders are asked in the owner's place."""
    return sorted({question.approvers for question in questions if not question.is_for_owner})


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


def view_of(
    identity: TaskIdentity,
    status_run: str,
    status: StatusChanged,
    history: Iterable[Message],
    artifacts: Iterable[Artifact],
) -> TaskView:
    """Put a view together; `status_run` is the run that published the status."""
    fields = {name: value for name, value in status if name in TaskStatus.model_fields}
    return TaskView(
        **dict(identity),
        run_id=status_run,
        version=status.version,
        status=TaskStatus(**fields),
        history=tuple(history),
        artifacts=tuple(artifacts),
    )


def microseconds(at: datetime) -> int:
    """Return microseconds since the epoch: the place of a task in a list."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def fails_drafts(state: TaskState) -> bool:
    """Whether a draft that is not complete when the task comes to this state has failed."""
    return state.is_terminal and state is not TaskState.COMPLETED


def is_at_work(state: TaskState) -> bool:
    """Whether a task in this state neither waits for people nor has ended."""
    return state in _AT_WORK


# What the subscribers of a client's task get of an event of a sub-agent's task. Pure.
#
# The rules of forwarding stand in `everloop.workflows.contract.events`.

MAX_FORWARDED_BYTES = 66_000
"""Of an event as JSON, so that the largest answer that comes whole has room. Of a larger event its short
fields are forwarded: what it holds stands elsewhere."""

MAX_CUT_CHARACTERS = 1_000
"""Of each text of an event that is cut."""

_INTERNAL = {"received", "questions", "shows", "content"}
"""Messages between agents, questions of the client's task, the required content of a view, and content of
earlier chunks."""


def forwarded(task_id: str, event: TaskEvent) -> SubAgentEvent | None:
    """Return what is forwarded to the task of the client; None for nothing."""
    if not is_child_task_id(task_id) or isinstance(event, TaskCreated):
        return None
    content = event.model_dump(mode="json", exclude=_INTERNAL)
    return SubAgentEvent(path=child_path(task_id), event=content if _fits(content) else _cut(content))


def _fits(content: dict[str, JsonValue]) -> bool:
    """Whether clients can be sent an event, and it is not too large to be sent beside all others."""
    text = json.dumps(content, ensure_ascii=False)
    return len(text.encode(errors="replace")) <= MAX_FORWARDED_BYTES and is_sendable(content)


def _cut(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return numbers and beginnings of texts: of a chunk, which artifact it belongs to, and where."""
    kept = {name: _shortened(value) for name, value in content.items() if not isinstance(value, dict | list)}
    return {**kept, "cut": True}


def _shortened(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and len(value) > MAX_CUT_CHARACTERS:
        return f"{value[:MAX_CUT_CHARACTERS]}…"
    return value
