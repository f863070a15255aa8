"""Events of a task: what an update has changed. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from a2a.types import a2a_pb2 as pb

from everloop.client.content import Artifact, plain_struct, text_of
from everloop.client.fold import RESPONSE, Task, event_data, time_of
from everloop.client.task_events import (
    ArtifactChanged,
    Event,
    OtherEvent,
    Progress,
    StatusChanged,
    TextDelta,
    Thought,
    ToolCallEnded,
    ToolCallStarted,
)
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION


def changes(before: Task, update: pb.StreamResponse, after: Task, *, is_partial: bool) -> Iterator[Event]:
    """Yield the events of an update that made `after` of `before`.

    `is_partial`: earlier events are missing, so that the beginning of an artifact may be.
    """
    ended = update.HasField("task") and after.state.is_terminal
    is_last = is_partial and (ended or update.artifact_update.last_chunk)
    came = update.status_update.metadata if update.HasField("status_update") else None
    data = plain_struct(came).get(EVENTS_EXTENSION) if came else None
    if isinstance(data, dict):
        yield from _extension_events(before, data, after)
    else:
        yield from ended_calls(before, after)
    for artifact in after.artifacts.values():
        if (old := before.artifacts.get(artifact.id)) != artifact:
            yield from _artifact_events(old, artifact, is_everloop=after.is_everloop, is_last=is_last)
    if after.id and _said(before) != _said(after):
        usage = after.usage if after.usage != before.usage else None
        text = text_of(after.status.message.parts)
        yield StatusChanged(state=after.state, text=text, usage=usage, at=time_of(after.status))
    for question in after.questions:
        if question.id in after.asked - before.asked:
            yield question


def ended_calls(before: Task, after: Task) -> Iterator[Event]:
    """Yield the calls that have ended."""
    for key, call in after.calls.items():
        if call.outcome and call != before.calls.get(key):
            yield ToolCallEnded(call=call)


def _said(task: Task) -> tuple[int, pb.Message]:
    return task.status.state, task.status.message


def _artifact_events(
    old: Artifact | None, artifact: Artifact, *, is_everloop: bool, is_last: bool
) -> Iterator[Event]:
    before, text = old.text if old else "", artifact.text
    starts_over = not text.startswith(before)
    if starts_over and is_last and text.endswith(before):
        starts_over, text = False, ""  # its beginning came before the subscription
    elif not starts_over:
        text = text[len(before) :]
    is_answer = artifact.id == RESPONSE
    if (is_answer or not is_everloop) and (text or starts_over):
        yield TextDelta(text=text, starts_over=starts_over, artifact_id=artifact.id)
    if not is_answer:
        yield ArtifactChanged(artifact=artifact)


def _extension_events(before: Task, data: Mapping[str, Any], after: Task) -> Iterator[Event]:
    """Yield an event of the extension, unless it repeats one of a lost attempt."""
    data, path = event_data(data)
    at = data.get("at")
    for event in _events_of(before, data, after, path):
        yield replace(event, at=datetime.fromisoformat(at) if isinstance(at, str) else None, path=path)


def _events_of(before: Task, data: Mapping[str, Any], after: Task, path: tuple[str, ...]) -> Iterator[Event]:
    match data.get("kind"):
        case None:
            pass
        case "thought":
            yield Thought(text=data["text"], is_last=bool(data.get("last")))
        case "narration":
            yield Progress(text=data["text"])
        case "tool-progress":
            yield Progress(text=data["message"], call_id=data["call_id"], tool=data["name"])
        case "tool-call" | "tool-complete":
            key = (*path, data["call_id"])
            call = after.calls[key]
            if call != before.calls.get(key):
                begun = ToolCallStarted(call_id=call.id, name=call.name, arguments=call.arguments)
                yield ToolCallEnded(call=call) if call.outcome else begun
        case kind:
            rest = {key: value for key, value in data.items() if key not in {"kind", "at"}}
            yield OtherEvent(kind=str(kind), data=rest)
