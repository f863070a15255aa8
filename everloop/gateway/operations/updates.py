"""Translation of task events into A2A updates for one client. Pure.

Source: A2A 1.0 §4.2 (update events).
"""

from collections.abc import Mapping

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.gateway.tasks.streams import EventId
from everloop.runtime.protocol.a2a_tasks import (
    FAILED_ARTIFACT,
    NARRATION,
    TaskUrl,
    is_visible,
    result_url,
    task_url_of,
    timestamp,
    to_part,
    to_status,
    to_struct,
)
from everloop.stores.log.log_types import START
from everloop.workflows.contract.events import (
    RESPONSE_ARTIFACT,
    ArtifactChunk,
    Narrated,
    Resumed,
    StatusChanged,
    TaskEvent,
    ToolCompleted,
)
from everloop.workflows.contract.fold import fails_drafts
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION
from everloop.workflows.contract.messages import EMPTY, AgentMessage, TextPart
from everloop.workflows.contract.tasks import TaskState, TaskStatus, TaskView

Update = pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent


class UpdateTranslator:
    """Translates the events after a view into A2A updates for one client.

    Tracks the client's last status, which events of the extension repeat, and the artifacts in
    progress. `extended`: the client activated `EVENTS_EXTENSION`. `after`: the client resumes after
    that event of an earlier connection, and has not received the view, which is newer.
    """

    def __init__(
        self, view: TaskView, public_url: str, *, extended: bool, after: EventId | None = None
    ) -> None:
        self._task_url: TaskUrl = task_url_of(view, public_url)
        self._extended = extended
        self._status = view.status
        if after and after.state:
            self._status = TaskStatus(state=after.state, at=after.at)
        visible = [artifact for artifact in view.artifacts if is_visible(artifact)]
        # A resuming client may hold an answer that was withdrawn since. Clearing it twice is harmless.
        self._has_answer = after is not None or any(a.artifact_id == RESPONSE_ARTIFACT for a in visible)
        # Failures that the view already shows are not reported again.
        self._unfinished = {
            a.artifact_id: a.name for a in visible if not a.complete and (after or not a.failed)
        }

    def event_id(self, position: str) -> EventId:
        """Return the id of the last translated event."""
        state: TaskState | None = self._status.state if self._extended else None
        return EventId(position, state)

    def translate(self, event: TaskEvent, position: str = START) -> list[Update]:
        """Return the updates, in order; empty if this client needs none.

        `position` is that of the event in the stream.
        """
        match event:
            case StatusChanged():
                return self._status_updates(event, position)
            case ArtifactChunk():
                return self._artifact_updates(event)
            case Narrated():
                return [self._narration_update(event, position)]
            case _ if self._extended:
                return [self._status_update(self._status, self._event_metadata(event, position))]
            case _:
                return []

    def _narration_update(self, event: Narrated, position: str) -> pb.TaskStatusUpdateEvent:
        """Return a passing status, which later events do not repeat."""
        message_id = f"{self._task_url.task_id}-narration-{position}"
        status = TaskStatus(
            state=TaskState.WORKING,
            at=EventId(position).at,
            message=AgentMessage(
                message_id=message_id, parts=(TextPart(text=event.text),), metadata={NARRATION: True}
            ),
        )
        return self._status_update(status, self._event_metadata(event, position))

    def _event_metadata(self, event: TaskEvent, position: str) -> dict[str, JsonValue]:
        """Return an event for clients of the extension, with its time by the store's clock."""
        if not self._extended:
            return {}
        fields = {**event.model_dump(mode="json"), "at": timestamp(EventId(position).at)}
        if isinstance(event, ToolCompleted) and event.cut:
            fields["url"] = result_url(self._task_url.public_url, self._task_url.task_id, event.call_id)
        return {EVENTS_EXTENSION: fields}

    def _status_updates(self, event: StatusChanged, position: str) -> list[Update]:
        """Return the status. A task that did not succeed first fails its open artifacts."""
        self._status = TaskStatus(state=event.state, at=event.at, message=event.message)
        failed: list[Update] = []
        if fails_drafts(event.state):
            failed = [self._failed_update(*each) for each in self._unfinished.items()]
            self._unfinished.clear()
        resumed = self._event_metadata(Resumed(after=event.resumed), position) if event.resumed else {}
        return [*failed, self._status_update(self._status, {**event.metadata, **resumed})]

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

    def _status_update(
        self, status: TaskStatus, metadata: Mapping[str, JsonValue]
    ) -> pb.TaskStatusUpdateEvent:
        return pb.TaskStatusUpdateEvent(
            task_id=self._task_url.task_id,
            context_id=self._task_url.context_id,
            status=to_status(status, self._task_url),
            metadata=to_struct(metadata),
        )

    def _artifact_updates(self, chunk: ArtifactChunk) -> list[Update]:
        """Return the chunk, unless it changes nothing for this client."""
        appends, is_empty = chunk.index > 0 or chunk.mode == "extend", chunk.part == EMPTY
        is_answer = chunk.artifact_id == RESPONSE_ARTIFACT
        if is_empty and appends and not chunk.last_chunk:
            return self._failure_updates(chunk)
        if is_empty and not appends and is_answer and not self._has_answer:
            return []  # withdraws content that this client never received
        self._note(chunk, is_withdrawn=is_empty and not appends and is_answer)
        artifact = pb.Artifact(
            artifact_id=chunk.artifact_id,
            name=chunk.name,
            description=chunk.description,
            parts=[to_part(part, self._task_url) for part in chunk.content or (chunk.part,)],
        )
        is_appended = appends and not chunk.content
        update = self._artifact_update(artifact, append=is_appended, last_chunk=chunk.last_chunk)
        return [update, *self._failure_updates(chunk)]

    def _failure_updates(self, chunk: ArtifactChunk) -> list[Update]:
        """Return the update that marks an artifact as unfinished, if the chunk says so."""
        if not chunk.failed:
            return []
        self._unfinished.pop(chunk.artifact_id, None)
        return [self._failed_update(chunk.artifact_id, chunk.name)]

    def _note(self, chunk: ArtifactChunk, *, is_withdrawn: bool) -> None:
        self._has_answer = self._has_answer or chunk.artifact_id == RESPONSE_ARTIFACT
        if chunk.last_chunk or is_withdrawn:
            self._unfinished.pop(chunk.artifact_id, None)
        else:
            self._unfinished[chunk.artifact_id] = chunk.name or self._unfinished.get(chunk.artifact_id, "")

    def _artifact_update(
        self, artifact: pb.Artifact, *, append: bool, last_chunk: bool
    ) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self._task_url.task_id,
            context_id=self._task_url.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last_chunk,
        )
