"""Translates events and views to the arguments of `task_views.lua`, and the fields of a view back."""

import json
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, TypeAdapter

from stores.forwarded_events import forwarded
from stores.task_views import ShownArtifact
from stores.view_parts import (
    TaskIdentity,
    chunks_of,
    fails_drafts,
    identity_of,
    is_plain,
    is_streaming,
    join_texts,
    microseconds,
    status_of,
    view_of,
)
from workflows.contract.events import (
    ArtifactChunk,
    Narrated,
    StatusChanged,
    SubAgentEvent,
    TaskCreated,
    TaskEvent,
)
from workflows.contract.messages import Message, Part, TextPart
from workflows.contract.names import (
    child_path,
    expiry_list_key,
    is_child_task_id,
    open_tasks_key,
    task_list_key,
)
from workflows.contract.tasks import Artifact, TaskView
from workflows.contract.wire import HIDE_VALUES

ScriptArguments = list[str | int]

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message, config=HIDE_VALUES)
_PARSED_PART: TypeAdapter[Part] = TypeAdapter(Part, config=HIDE_VALUES)
_TEXT, _PART = "t", "d"
_ARTIFACT = "artifact:"


class _Draft(BaseModel):
    """What `task_views.lua` keeps of a draft, besides its blocks."""

    order: int
    position: int
    attempt: int
    name: str
    description: str = ""
    blocks: int
    complete: bool
    failed: bool = False


def forwarding_head(task_id: str) -> str:
    """Return the JSON of what is forwarded, up to the event itself; empty for the task of a client."""
    if not is_child_task_id(task_id):
        return ""
    return SubAgentEvent(path=child_path(task_id), event={}).model_dump_json().removesuffix("{}}")


def encode_events(task_id: str, events: Iterable[TaskEvent]) -> ScriptArguments:
    """Return the arguments of the operation `publish`."""
    arguments: ScriptArguments = []
    for event in events:
        match event:
            case StatusChanged():
                arguments += ["status", *encode_status(task_id, event)]
            case ArtifactChunk():
                arguments += ["chunk", *_encode_chunk(task_id, event)]
            case Narrated():
                arguments += ["narration", *_encode_telling(task_id, event)]
            case _:
                arguments += ["other", *_encode_telling(task_id, event)]
    return arguments


def _encode_telling(task_id: str, event: TaskEvent) -> tuple[str, str]:
    """Return the event for the stream of its task, and what is forwarded of it."""
    told = forwarded(task_id, event)
    return event.model_dump_json(), json.dumps(told.event) if told else ""


def encode_creation(view: TaskView) -> ScriptArguments:
    """Return the arguments of the operation `create`."""
    return [
        TaskCreated().model_dump_json(),
        *encode_status(view.task_id, status_of(view)),
        *_encode_messages(view.history),
        *_encode_static_part(view),
    ]


def encode_restoration(view: TaskView) -> ScriptArguments:
    """Return the arguments of the operation `restore`."""
    artifacts = [chunks for artifact in view.artifacts if (chunks := chunks_of(artifact))]
    arguments: ScriptArguments = [
        int(is_streaming(view)),
        *encode_status(view.task_id, status_of(view)),
        *_encode_messages(view.history),
        *_encode_static_part(view),
        len(artifacts),
    ]
    for chunks in artifacts:
        arguments.append(len(chunks))
        for chunk in chunks:
            arguments += _encode_chunk(view.task_id, chunk)
    return arguments


def encode_status(task_id: str, status: StatusChanged) -> ScriptArguments:
    """Return the arguments of the operation `end`."""
    return [
        *_encode_telling(task_id, status),
        status.version,
        status.step,
        status.state.value,
        int(fails_drafts(status.state)),
        microseconds(status.at),
        *(_encode_message(status.message) if status.message else ("", "")),
        *_encode_messages(status.received),
    ]


def _encode_static_part(view: TaskView) -> ScriptArguments:
    return [
        identity_of(view).model_dump_json(),
        task_list_key(view.owner, view.agent_id),
        task_list_key(view.owner, view.agent_id, view.context_id),
        expiry_list_key(view.owner, view.agent_id),
        "" if is_child_task_id(view.task_id) else open_tasks_key(view.owner),
    ]


def _encode_messages(messages: Sequence[Message]) -> ScriptArguments:
    return [len(messages), *(word for message in messages for word in _encode_message(message))]


def _encode_message(message: Message) -> tuple[str, str]:
    return message.message_id, message.model_dump_json()


def _encode_chunk(task_id: str, chunk: ArtifactChunk) -> ScriptArguments:
    return [
        *_encode_telling(task_id, chunk),
        chunk.artifact_id,
        chunk.name,
        chunk.description,
        chunk.mode,
        chunk.position,
        chunk.attempt,
        chunk.index,
        int(chunk.last_chunk),
        int(chunk.failed),
        _encode_part(chunk.part),
    ]


def _encode_part(part: Part) -> str:
    return (
        _TEXT + part.text if isinstance(part, TextPart) and is_plain(part) else _PART + part.model_dump_json()
    )


def decode_view(fields: Mapping[str, str], history: Iterable[str]) -> TaskView | None:
    """Return the view that these fields and history entries make, None if the static part is missing."""
    if "task" not in fields:
        return None
    return view_of(
        TaskIdentity.model_validate_json(fields["task"]),
        fields["status_run"],
        StatusChanged.model_validate_json(fields["status"]),
        [_MESSAGE.validate_json(message) for message in history],
        _decode_artifacts(fields),
    )


def decode_artifact(artifact_id: str, draft_json: str, blocks: Iterable[str]) -> ShownArtifact:
    """Return the artifact that a draft and its blocks make."""
    draft = _Draft.model_validate_json(draft_json)
    return ShownArtifact(_artifact_of(artifact_id, draft, blocks), draft.position, draft.attempt)


def _decode_artifacts(fields: Mapping[str, str]) -> list[Artifact]:
    drafts = {
        name.removeprefix(_ARTIFACT): _Draft.model_validate_json(draft)
        for name, draft in fields.items()
        if name.startswith(_ARTIFACT)
    }
    return [
        _artifact_of(
            artifact_id,
            draft,
            (fields[f"block:{number}:{artifact_id}"] for number in range(1, draft.blocks + 1)),
        )
        for artifact_id, draft in sorted(drafts.items(), key=lambda item: item[1].order)
    ]


def _artifact_of(artifact_id: str, draft: _Draft, blocks: Iterable[str]) -> Artifact:
    return Artifact(
        artifact_id=artifact_id,
        name=draft.name,
        description=draft.description,
        parts=join_texts(map(_decode_part, blocks)),
        complete=draft.complete,
        failed=draft.failed,
    )


def _decode_part(block: str) -> Part:
    kind, content = block[0], block[1:]
    return TextPart(text=content) if kind == _TEXT else _PARSED_PART.validate_json(content)
