"""Tasks and their events as A2A messages. Pure.

Source: A2A 1.0 §4.1 (Task, Message, Part, Artifact) and §4.2 (update events).
"""

from collections.abc import Mapping
from typing import cast

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import JsonValue

from stores.view_parts import fails_drafts
from workflows.contract.events import ArtifactChunk, StatusChanged, TaskEvent
from workflows.contract.messages import DataPart, Message, Part, TextPart, UserMessage
from workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

EVENTS_EXTENSION = "https://everloop.dev/extensions/events/v1"
"""A client that activates it gets every event of a task, as metadata of status updates under this URI."""

FAILED_ARTIFACT: Mapping[str, JsonValue] = {"status": "failed"}
"""Metadata of an artifact that its task left unfinished."""

STATES_BY_NUMBER: dict[int, TaskState] = {
    pb.TaskState.Value(f"TASK_STATE_{state.name}"): state for state in TaskState
}

Update = pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent


def to_task(view: TaskView, *, history_length: int | None = None, include_artifacts: bool = True) -> pb.Task:
    """Return the A2A Task of a view, with the newest `history_length` messages (None: all).

    Artifacts without any content are left out: a draft that was withdrawn is one. The metadata are those of
    the status: what the task has used so far.
    """
    skipped = 0 if history_length is None else max(0, len(view.history) - history_length)
    return pb.Task(
        id=view.task_id,
        context_id=view.context_id,
        status=to_status(view.status, view),
        history=[to_message(message, view) for message in view.history[skipped:]],
        artifacts=[to_artifact(a) for a in view.artifacts if has_content(a)] if include_artifacts else [],
        metadata=to_struct(view.status.metadata),
    )


def to_status(status: TaskStatus, view: TaskView) -> pb.TaskStatus:
    """Return the A2A status; times keep their microseconds."""
    at = Timestamp()
    at.FromDatetime(status.at)
    message = to_message(status.message, view) if status.message else None
    return pb.TaskStatus(state=f"TASK_STATE_{status.state.name}", message=message, timestamp=at)


def to_message(message: Message, view: TaskView) -> pb.Message:
    """Return the A2A message, with the ids of its task and context."""
    return pb.Message(
        message_id=message.message_id,
        task_id=view.task_id,
        context_id=view.context_id,
        role=pb.ROLE_USER if isinstance(message, UserMessage) else pb.ROLE_AGENT,
        parts=[to_part(part) for part in message.parts],
        metadata=to_struct(message.metadata),
    )


def to_artifact(artifact: Artifact) -> pb.Artifact:
    """Return the A2A artifact with all its parts."""
    return pb.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        parts=[to_part(part) for part in artifact.parts],
        metadata=to_struct(FAILED_ARTIFACT) if artifact.failed else None,
    )


def to_part(part: Part) -> pb.Part:
    """Return the A2A part."""
    if isinstance(part, TextPart):
        return pb.Part(text=part.text)
    # ParseDict takes any JSON value where the message is a Value; its annotation knows objects only.
    return pb.Part(data=ParseDict(cast("dict[str, JsonValue]", part.data), Value()))


def to_struct(metadata: Mapping[str, JsonValue]) -> Struct | None:
    """Return metadata as protobuf has it; None where there is none, so that the field stays unset."""
    return ParseDict(dict(metadata), Struct()) if metadata else None


def has_content(artifact: Artifact) -> bool:
    """Whether there is anything in it to show."""
    return any(isinstance(part, DataPart) or part.text for part in artifact.parts)


class UpdateTranslator:
    """Turns the events that follow a view into A2A updates for one client.

    It remembers what that client knows: the last status, which the events of the extension repeat, the
    artifacts it was shown, and, with their names, those of them that are still being written. `extended`
    means that the client activated `EVENTS_EXTENSION`.
    """

    def __init__(self, view: TaskView, *, extended: bool) -> None:
        self._view = view
        self._extended = extended
        self._status = view.status
        shown = [artifact for artifact in view.artifacts if has_content(artifact)]
        self._shown = {artifact.artifact_id for artifact in shown}
        self._open = {a.artifact_id: a.name for a in shown if not (a.complete or a.failed)}

    def translate(self, event: TaskEvent) -> list[Update]:
        """Return the updates, in order; none if there is nothing to tell this client."""
        match event:
            case StatusChanged():
                return self._status_updates(event)
            case ArtifactChunk():
                return self._artifact_updates(event)
            case _ if self._extended:
                return [self._status_update({EVENTS_EXTENSION: event.model_dump(mode="json")})]
            case _:
                return []

    def _status_updates(self, event: StatusChanged) -> list[Update]:
        """Return the status; before one that ends the task badly, what becomes of unfinished artifacts."""
        self._status = TaskStatus(state=event.state, at=event.at, message=event.message)
        failed: list[Update] = []
        if fails_drafts(event.state):
            failed = [self._failed_update(artifact_id, name) for artifact_id, name in self._open.items()]
            self._open.clear()
        return [*failed, self._status_update(event.metadata)]

    def _failed_update(self, artifact_id: str, name: str) -> pb.TaskArtifactUpdateEvent:
        return self._artifact_update(
            pb.Artifact(
                artifact_id=artifact_id,
                name=name,
                parts=[pb.Part(text="")],
                metadata=to_struct(FAILED_ARTIFACT),
            ),
            append=True,
            last_chunk=True,
        )

    def _status_update(self, metadata: Mapping[str, JsonValue]) -> pb.TaskStatusUpdateEvent:
        return pb.TaskStatusUpdateEvent(
            task_id=self._view.task_id,
            context_id=self._view.context_id,
            status=to_status(self._status, self._view),
            metadata=to_struct(metadata),
        )

    def _artifact_updates(self, chunk: ArtifactChunk) -> list[Update]:
        """Return the chunk; an empty one matters only to a client that was shown the artifact."""
        shown = chunk.artifact_id in self._shown
        empty = isinstance(chunk.part, TextPart) and not chunk.part.text
        if empty and not shown:
            return []
        self._note(chunk, withdrawn=empty and chunk.index == 0)
        artifact = pb.Artifact(artifact_id=chunk.artifact_id, name=chunk.name, parts=[to_part(chunk.part)])
        # Appending to what this client never saw would be an error to it.
        append = chunk.index > 0 and shown
        return [self._artifact_update(artifact, append=append, last_chunk=chunk.last_chunk)]

    def _note(self, chunk: ArtifactChunk, *, withdrawn: bool) -> None:
        if withdrawn:
            self._shown.discard(chunk.artifact_id)
        else:
            self._shown.add(chunk.artifact_id)
        if withdrawn or chunk.last_chunk:
            self._open.pop(chunk.artifact_id, None)
        else:
            self._open[chunk.artifact_id] = chunk.name

    def _artifact_update(
        self, artifact: pb.Artifact, *, append: bool, last_chunk: bool
    ) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self._view.task_id,
            context_id=self._view.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last_chunk,
        )
