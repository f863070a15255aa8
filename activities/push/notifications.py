"""Notifications as A2A has them. Pure. Loaded with the first one: A2A's messages take 3 MiB.

Source: A2A 1.0 §4.3.3 (a StreamResponse), and 0.3 §9.5 (a Task).
"""

import json
from dataclasses import dataclass

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict

from everloop.activities.push.feed import Subject
from everloop.runtime.protocol.tasks import TaskUrl, to_artifact, to_status, to_struct, to_task
from everloop.stores.push.configs import PushConfig
from everloop.workflows.contract.events import StatusChanged
from everloop.workflows.contract.parts import with_whole_numbers
from everloop.workflows.contract.tasks import Artifact, TaskStatus, TaskView


@dataclass(frozen=True)
class Body:
    """What is posted."""

    content: bytes
    media_type: str


def write_body(config: PushConfig, subject: Subject) -> Body:
    """Return the notification for a client of A2A 1.0."""
    task_url = TaskUrl(config.task_id, config.context_id, config.public_url)
    match subject:
        case TaskView():
            response = pb.StreamResponse(task=to_task(subject, config.public_url))
        case StatusChanged():
            response = pb.StreamResponse(status_update=_status_update(subject, task_url))
        case Artifact():
            response = pb.StreamResponse(artifact_update=_artifact_update(subject, task_url))
    return Body(_encode(MessageToDict(response)), "application/a2a+json")


def write_legacy_body(config: PushConfig, view: TaskView) -> Body:
    """Return the notification for a client of A2A 0.3: always the task."""
    from a2a.compat.v0_3 import conversions  # noqa: PLC0415 -- 2 MiB for clients of old

    task = conversions.to_compat_task(to_task(view, config.public_url))
    return Body(_encode(task.model_dump(mode="json", by_alias=True, exclude_none=True)), "application/json")


def with_status(view: TaskView, event: StatusChanged) -> TaskView:
    """Return a view with an earlier status of its task."""
    return view.model_copy(update={"status": _status(event)})


def _status(event: StatusChanged) -> TaskStatus:
    return TaskStatus(state=event.state, at=event.at, message=event.message, metadata=event.metadata)


def _status_update(event: StatusChanged, task_url: TaskUrl) -> pb.TaskStatusUpdateEvent:
    return pb.TaskStatusUpdateEvent(
        task_id=task_url.task_id,
        context_id=task_url.context_id,
        status=to_status(_status(event), task_url),
        metadata=to_struct(event.metadata),
    )


def _artifact_update(artifact: Artifact, task_url: TaskUrl) -> pb.TaskArtifactUpdateEvent:
    return pb.TaskArtifactUpdateEvent(
        task_id=task_url.task_id,
        context_id=task_url.context_id,
        artifact=to_artifact(artifact, task_url),
        append=False,
        last_chunk=True,
    )


def _encode(value: object) -> bytes:
    return with_whole_numbers(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
