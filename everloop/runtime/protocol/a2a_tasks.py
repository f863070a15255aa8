"""Tasks as A2A messages. Pure.

Source: A2A 1.0 §4.1 (Task, Message, Part, Artifact).
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from urllib.parse import quote

from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import JsonValue

from everloop.workflows.contract.events import RESPONSE_ARTIFACT
from everloop.workflows.contract.messages import (
    EMPTY,
    AgentMessage,
    DataPart,
    FilePart,
    Message,
    Part,
    TextPart,
    UserMessage,
)
from everloop.workflows.contract.names import view_message_id
from everloop.workflows.contract.parts import is_sendable
from everloop.workflows.contract.tasks import Artifact, TaskState, TaskStatus, TaskView

FAILED_ARTIFACT: Mapping[str, JsonValue] = {"status": "failed"}
"""Metadata of an artifact that its task left unfinished."""

FORK = "fork"
"""Metadata key of a forked task: the id of its origin, and the iterations taken over."""

NARRATION = "narration"
"""Metadata key of a message that only reports progress and is not part of the conversation."""

LEFT_OUT = "leftOut"
"""Metadata key of a task sent without history and artifacts, because they are too large."""

STATES_BY_NUMBER: dict[int, TaskState] = {
    pb.TaskState.Value(f"TASK_STATE_{state.name}"): state for state in TaskState
}


def timestamp(at: datetime) -> str:
    """Format a time as the whole extension does: RFC 3339, UTC, milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class TaskUrl:
    """A task and the public URL of the gateway that serves its files."""

    task_id: str
    context_id: str
    public_url: str


def task_url_of(view: TaskView, public_url: str) -> TaskUrl:
    """Return the base of the URLs in a view."""
    return TaskUrl(view.task_id, view.context_id, public_url)


def to_task(
    view: TaskView, public_url: str, *, history_length: int | None = None, include_artifacts: bool = True
) -> pb.Task:
    """Return the A2A Task of a view, with the newest `history_length` messages (None: all).

    Artifacts without content are left out, unless their content is still being written. The metadata
    are those of the status, that is the task's usage so far; a fork names its origin too.
    """
    task_url = task_url_of(view, public_url)
    is_over = view.status.state.is_terminal
    artifacts = [
        a
        for a in view.artifacts
        if _has_content(a) or (is_visible(a) and not (a.complete or a.failed or is_over))
    ]
    metadata = dict(view.status.metadata)
    if view.fork:
        metadata[FORK] = {"taskId": view.fork.task_id, "iteration": view.fork.iteration}
    return pb.Task(
        id=view.task_id,
        context_id=view.context_id,
        status=to_status(view.status, task_url),
        history=[to_message(message, task_url) for message in newest(view, history_length)],
        artifacts=[to_artifact(artifact, task_url) for artifact in artifacts] if include_artifacts else [],
        metadata=to_struct(metadata),
    )


def left_out(size: int) -> dict[str, JsonValue]:
    """Return the metadata of a task sent without history and artifacts; `size`: its stored bytes."""
    return {
        LEFT_OUT: {
            "fields": ["history", "artifacts"],
            "storedBytes": size,
            "hint": "they are too large for this answer; call GetTask, with a small historyLength",
        }
    }


def newest(view: TaskView, history_length: int | None) -> tuple[Message, ...]:
    """Return the newest messages of the history (None: all)."""
    skipped = 0 if history_length is None else max(0, len(view.history) - history_length)
    return view.history[skipped:]


def to_status(status: TaskStatus, task_url: TaskUrl) -> pb.TaskStatus:
    """Return the A2A status; times have microseconds."""
    at = Timestamp()
    at.FromDatetime(status.at)
    message = to_message(status.message, task_url) if status.message else None
    return pb.TaskStatus(state=f"TASK_STATE_{status.state.name}", message=message, timestamp=at)


def to_message(message: Message, task_url: TaskUrl) -> pb.Message:
    """Return the A2A message, with the ids of its task and context."""
    of_user = isinstance(message, UserMessage)
    return pb.Message(
        message_id=view_message_id(message.message_id),
        task_id=task_url.task_id,
        context_id=task_url.context_id,
        role=pb.ROLE_USER if of_user else pb.ROLE_AGENT,
        parts=[to_part(part, task_url) for part in message.parts],
        metadata=to_struct(message.metadata),
        extensions=message.extensions if of_user else (),
        reference_task_ids=[each.task_id for each in message.references] if of_user else (),
    )


def to_direct_message(message: AgentMessage, context_id: str) -> pb.Message:
    """Return the A2A message of a direct reply, made without a task."""
    return to_message(message, TaskUrl("", context_id, ""))


def to_artifact(artifact: Artifact, task_url: TaskUrl) -> pb.Artifact:
    """Return the A2A artifact with all its parts."""
    return pb.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=[to_part(part, task_url) for part in artifact.parts],
        metadata=to_struct(FAILED_ARTIFACT) if artifact.failed else None,
    )


def to_part(part: Part, task_url: TaskUrl) -> pb.Part:
    """Return the A2A part. A file stored elsewhere becomes its URL."""
    match part:
        case TextPart():
            content = pb.Part(text=part.text)
        case DataPart():
            content = to_data(part.data)
        case FilePart():
            content = _to_file(part, task_url)
    content.media_type, content.filename = part.media_type or content.media_type, part.filename
    if metadata := to_struct(part.metadata):
        content.metadata.CopyFrom(metadata)
    return content


def to_data(value: JsonValue) -> pb.Part:
    """Return a value as data; as text if protobuf cannot hold it, because it must stay readable."""
    if not is_sendable(value):
        return pb.Part(text=json.dumps(value, ensure_ascii=False), media_type="application/json")
    # ParseDict takes any JSON value where the message is a Value; its annotation knows objects only.
    return pb.Part(data=ParseDict(cast("dict[str, JsonValue]", value), Value()))


def _to_file(part: FilePart, task_url: TaskUrl) -> pb.Part:
    if part.url:
        return pb.Part(url=part.url)
    if part.stored:
        stored = part.stored
        return pb.Part(
            url=part_url(task_url.public_url, task_url.context_id, stored.artifact_id, stored.index)
        )
    return pb.Part(raw=base64.b64decode(part.content))


def to_struct(metadata: Mapping[str, JsonValue]) -> Struct | None:
    """Return metadata as a protobuf Struct; None if empty, so that the field stays unset."""
    return ParseDict(dict(metadata), Struct()) if metadata else None


def is_visible(artifact: Artifact) -> bool:
    """Return True if clients see the artifact: a response without content is a withdrawn draft."""
    return artifact.artifact_id != RESPONSE_ARTIFACT or _has_content(artifact)


def _has_content(artifact: Artifact) -> bool:
    return any(part != EMPTY for part in artifact.parts)


# Where a gateway serves the parts of artifacts, and results of tools: its downloads answer there.

ARTIFACTS = "artifacts"
PARTS = "parts"
RESULTS = "results"


def artifact_url(public_url: str, context_id: str, artifact_id: str) -> str:
    """Return the URL of an artifact's description; `public_url` ends with a slash."""
    return f"{public_url}{ARTIFACTS}/{quote(context_id, safe='')}/{quote(artifact_id, safe='')}"


def part_url(public_url: str, context_id: str, artifact_id: str, index: int) -> str:
    """Return the URL of a part's content."""
    return f"{artifact_url(public_url, context_id, artifact_id)}/{PARTS}/{index}"


def result_url(public_url: str, task_id: str, call_id: str) -> str:
    """Return the URL of a tool call's complete result."""
    return f"{public_url}{RESULTS}/{quote(task_id, safe='')}/{quote(call_id, safe='')}"
