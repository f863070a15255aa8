"""Bodies of notifications in A2A's formats. Pure. Loaded on first use: A2A's messages take 3 MiB.

Source: A2A 1.0 §4.3.3 (a StreamResponse), and 0.3 §9.5 (a Task).
"""

import json
from dataclasses import dataclass

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from everloop.activities.push.feed import Subject
from everloop.runtime.protocol.a2a_tasks import TaskUrl, to_artifact, to_status, to_struct, to_task
from everloop.stores.push.configs import PushConfig
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.parts import with_whole_numbers
from everloop.workflows.contract.tasks import Artifact, TaskStatus, TaskView


@dataclass(frozen=True)
class NotificationBody:
    """The body of a notification."""

    content: bytes
    media_type: str


def write_body(config: PushConfig, subject: Subject) -> NotificationBody:
    """Return the notification for a client of A2A 1.0."""
    task_url = TaskUrl(config.task_id, config.context_id, config.public_url)
    match subject:
        case TaskView():
            response = pb.StreamResponse(task=to_task(subject, config.public_url))
        case StatusChanged():
            status, metadata = to_status(_status(subject), task_url), to_struct(subject.metadata)
            update = pb.TaskStatusUpdateEvent(
                task_id=config.task_id, context_id=config.context_id, status=status, metadata=metadata
            )
            response = pb.StreamResponse(status_update=update)
        case Artifact():
            artifact = to_artifact(subject, task_url)
            update = pb.TaskArtifactUpdateEvent(
                task_id=config.task_id, context_id=config.context_id, artifact=artifact, last_chunk=True
            )
            response = pb.StreamResponse(artifact_update=update)
    return NotificationBody(_encode(MessageToDict(response)), "application/a2a+json")


def write_legacy_body(config: PushConfig, view: TaskView) -> NotificationBody:
    """Return the notification for a client of A2A 0.3, which is always the task."""
    from a2a.compat.v0_3 import conversions  # noqa: PLC0415 -- 2 MiB for clients of old

    task = conversions.to_compat_task(to_task(view, config.public_url))
    return NotificationBody(
        _encode(task.model_dump(mode="json", by_alias=True, exclude_none=True)), "application/json"
    )


def with_status(view: TaskView, event: StatusChanged) -> TaskView:
    """Return a view with an earlier status of its task."""
    return view.model_copy(update={"status": _status(event)})


def _status(event: StatusChanged) -> TaskStatus:
    return TaskStatus(state=event.state, at=event.at, message=event.message, metadata=event.metadata)


def _encode(value: object) -> bytes:
    return with_whole_numbers(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
