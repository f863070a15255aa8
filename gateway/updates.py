"""The events of a task as A2A updates for one client. Pure.

Source: A2A 1.0 §4.2 (update events).
"""

from collections.abc import Mapping

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from gateway.event_ids import EventId
from gateway.translate import (
    EVENTS_EXTENSION,
    FAILED_ARTIFACT,
    Place,
    has_content,
    place_of,
    to_part,
    to_status,
    to_struct,
)
from stores.view_parts import EMPTY, fails_drafts
from workflows.contract.events import ArtifactChunk, StatusChanged, TaskEvent
from workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

Update = pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent


class KnownArtifacts:
    """What a client knows of the artifacts of its task.

    `is_shown` tells whether it has an artifact that what follows can append to; of one that goes on after an
    earlier connection we know only what it was not shown, and take it that it has all others. `hidden` are
    those that have begun without any content, and so were not shown. `unfinished` maps those that are still
    being written to their names.
    """

    def __init__(self, view: TaskView, after: EventId | None) -> None:
        self._goes_on = after is not None
        self._shown = (
            {a.artifact_id for a in view.artifacts if has_content(a)} if after is None else set[str]()
        )
        self.hidden = set(after.hidden) if after else _begun_without_content(view)
        # A client that goes on may have yet to hear what failed before we looked: twice is no harm.
        self.unfinished = {
            a.artifact_id: a.name
            for a in view.artifacts
            if has_content(a) and not a.complete and (self._goes_on or not a.failed)
        }

    def is_shown(self, artifact_id: str) -> bool:
        return artifact_id in self._shown or (self._goes_on and artifact_id not in self.hidden)

    def show(self, chunk: ArtifactChunk) -> None:
        self._shown.add(chunk.artifact_id)
        self.hidden.discard(chunk.artifact_id)
        if chunk.last_chunk:
            self.unfinished.pop(chunk.artifact_id, None)
        else:
            self.unfinished[chunk.artifact_id] = chunk.name or self.unfinished.get(chunk.artifact_id, "")

    def hide(self, chunk: ArtifactChunk) -> None:
        """Note that the artifact has no content; nothing follows on one that is complete."""
        self._shown.discard(chunk.artifact_id)
        self.unfinished.pop(chunk.artifact_id, None)
        if chunk.last_chunk:
            self.hidden.discard(chunk.artifact_id)
        else:
            self.hidden.add(chunk.artifact_id)


class UpdateTranslator:
    """Turns the events that follow a view into A2A updates for one client.

    It remembers what that client knows: the last status, which the events of the extension repeat, and its
    artifacts. `extended` means that the client activated `EVENTS_EXTENSION`. `after`: it goes on behind that
    event of an earlier connection, and has not seen the view, which is newer.
    """

    def __init__(
        self, view: TaskView, public_url: str, *, extended: bool, after: EventId | None = None
    ) -> None:
        self._place: Place = place_of(view, public_url)
        self._extended = extended
        self._status = view.status
        if after and after.state:
            self._status = TaskStatus(state=after.state, at=after.at)
        self._known = KnownArtifacts(view, after)

    def event_id(self, position: str) -> EventId:
        """Return the id of the event that was translated last."""
        state: TaskState | None = self._status.state if self._extended else None
        return EventId(position, state, frozenset(self._known.hidden))

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
            unfinished = self._known.unfinished
            failed = [
                self._failed_update(*each) for each in unfinished.items() if self._known.is_shown(each[0])
            ]
            unfinished.clear()
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
            task_id=self._place.task_id,
            context_id=self._place.context_id,
            status=to_status(self._status, self._place),
            metadata=to_struct(metadata),
        )

    def _artifact_updates(self, chunk: ArtifactChunk) -> list[Update]:
        """Return the chunk, unless it changes nothing for this client."""
        appends = chunk.index > 0 or chunk.mode == "extend"
        shown = self._known.is_shown(chunk.artifact_id)
        if chunk.part == EMPTY and appends and shown:
            if not chunk.last_chunk:
                return []
            self._known.show(chunk)
        elif chunk.part == EMPTY:
            self._known.hide(chunk)
            if not shown:
                return []
        else:
            self._known.show(chunk)
        # Appending to what this client never saw would be an error to it.
        return [self._chunk_update(chunk, append=appends and shown)]

    def _chunk_update(self, chunk: ArtifactChunk, *, append: bool) -> pb.TaskArtifactUpdateEvent:
        artifact = pb.Artifact(
            artifact_id=chunk.artifact_id,
            name=chunk.name,
            description=chunk.description,
            parts=[to_part(chunk.part, self._place)],
        )
        return self._artifact_update(artifact, append=append, last_chunk=chunk.last_chunk)

    def _artifact_update(
        self, artifact: pb.Artifact, *, append: bool, last_chunk: bool
    ) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self._place.task_id,
            context_id=self._place.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last_chunk,
        )


def _begun_without_content(view: TaskView) -> set[str]:
    return {a.artifact_id for a in view.artifacts if not has_content(a) and _is_unfinished(a)}


def _is_unfinished(artifact: Artifact) -> bool:
    return not (artifact.complete or artifact.failed)
