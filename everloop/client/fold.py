"""State of a task by A2A (1.0 §4.2): a task and an update go in, the next task comes out. Pure.

The events of an update are the difference of both states (`changes.py`). A task may therefore be read or
subscribed to at any time, however often the connection is made again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.client.content import Artifact, Part, joined, plain, plain_struct, text_of
from everloop.client.task_events import Event, Question, Result, TaskState, ToolCall, Usage, arguments_of
from everloop.workflows.contract.http_extension import EVENTS_EXTENSION

RESPONSE = "response"
"""The artifact that carries the answer of an Everloop, and of an agent that answers without a task."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The state of a task, or an answer without one (`id` is empty)."""

    is_everloop: bool = False
    """The server marks the artifact that is the answer; of others, all texts are."""
    awaited: str = ""
    """Id of a sent message that the task has not received yet, so that its open question is old."""
    id: str = ""
    context_id: str = ""
    status: pb.TaskStatus = field(default_factory=pb.TaskStatus)
    history: tuple[pb.Message, ...] = ()
    """The messages of the last snapshot."""
    artifacts: Mapping[str, Artifact] = field(default_factory=dict[str, Artifact])
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    usage: Usage | None = None
    calls: Mapping[tuple[str, ...], ToolCall] = field(default_factory=dict[tuple[str, ...], ToolCall])
    """By path and id, including those of sub-agents."""
    asked: frozenset[str] = frozenset()
    """Ids of the open questions that are not old."""

    @property
    def state(self) -> TaskState:
        """The state of the status."""
        return state_of(self.status.state)

    @property
    def is_waiting(self) -> bool:
        """Whether the task needs an answer, and has received the sent message."""
        return self.state.is_waiting and not self.awaited

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions: in Everloop's format, or the text of the status."""
        if not self.state.is_waiting:
            return ()
        message, at = self.status.message, time_of(self.status)
        for part in message.parts:
            data = plain(part.data) if part.HasField("data") else None
            described = data.get("questions") if isinstance(data, dict) else None
            listed = described if isinstance(described, list) else []
            if found := [each for each in listed if isinstance(each, dict)]:
                return tuple(_question(each, at, self.id) for each in found)
        kind = "auth" if self.state is TaskState.AUTH_REQUIRED else "clarification"
        return (Question(kind=kind, text=text_of(message.parts), at=at, task_id=self.id),)

    def result(self, events: tuple[Event, ...] = ()) -> Result:
        """Return the state for users."""
        said = text_of(self.status.message.parts)
        is_bad = self.state.is_terminal and self.state is not TaskState.COMPLETED
        answer = self.artifacts.get(RESPONSE)
        others = [one for one in self.artifacts.values() if one.id != RESPONSE]
        reason = plain_struct(self.status.message.metadata).get("reason") or self.metadata.get("reason")
        return Result(
            id=self.id,
            context_id=self.context_id,
            state=self.state,
            text=self._text(said if self.state is TaskState.COMPLETED else ""),
            data=answer.data if answer else next((one.data for one in others if one.data is not None), None),
            artifacts=tuple(others),
            tool_calls=tuple(call for path, call in self.calls.items() if len(path) == 1),
            usage=self.usage,
            questions=self.questions,
            events=events,
            error=(said or f"the task is {self.state}") if is_bad else None,
            reason=str(reason or ""),
            updated_at=time_of(self.status),
            metadata={key: value for key, value in self.metadata.items() if key != EVENTS_EXTENSION},
        )

    def _text(self, said: str) -> str:
        """Return the answer. A server without an artifact of its name may use any other, or the status."""
        if answer := self.artifacts.get(RESPONSE):
            return answer.text
        if self.is_everloop:
            return ""
        texts = [one.text.strip() for one in self.artifacts.values()]
        words = dict.fromkeys(filter(None, [*texts, said.strip()]))
        return "\n\n".join(words) or self.last_words

    @property
    def last_words(self) -> str:
        """The text of the agent's last message."""
        said = [text_of(one.parts) for one in self.history if one.role == pb.Role.ROLE_AGENT]
        return said[-1] if said else ""


def fold(task: Task, update: pb.StreamResponse) -> Task:
    """Return the state of a task after an update."""
    match update.WhichOneof("payload"):
        case "task":
            return _snapshot(task, update.task)
        case "message":
            return _message(task, update.message)
        case "status_update":
            return _status_update(task, update.status_update)
        case "artifact_update":
            return _artifact_update(task, update.artifact_update)
        case _:
            return task


def task_of(proto: pb.Task, *, is_everloop: bool) -> Task:
    """Return the state of a task that was read."""
    return _snapshot(Task(is_everloop=is_everloop), proto)


def result_of(proto: pb.Task, *, is_everloop: bool) -> Result:
    """Return the result of a task that was read."""
    return task_of(proto, is_everloop=is_everloop).result()


def add_steps(task: Task, metadata: Mapping[str, JsonValue]) -> Task:
    """Return the task with the calls in the metadata of a snapshot; calls that have ended stay."""
    calls = dict(task.calls)
    for step in steps_of(metadata) or ():
        for data in step.get("calls", []):
            now = ended_call(data)
            if not ((old := calls.get((now.id,))) and old.outcome):
                calls[now.id,] = now
    return replace(task, calls=calls)


def steps_of(metadata: Mapping[str, JsonValue]) -> list[dict[str, Any]] | None:
    """Return the calls of model and tools in the metadata, None if they have none."""
    about = metadata.get(EVENTS_EXTENSION)
    return cast("list[dict[str, Any]] | None", about.get("steps")) if isinstance(about, dict) else None


def _message(task: Task, message: pb.Message) -> Task:
    metadata = plain_struct(message.metadata)
    answer = Artifact(id=RESPONSE, parts=tuple(map(Part.of, message.parts)), is_complete=True)
    return replace(
        task,
        context_id=message.context_id,
        status=pb.TaskStatus(state=pb.TaskState.TASK_STATE_COMPLETED),
        metadata=metadata,
        usage=_usage(metadata),
        artifacts={RESPONSE: answer},
        awaited="",
    )


def _snapshot(task: Task, proto: pb.Task) -> Task:
    metadata, artifacts = plain_struct(proto.metadata), dict(task.artifacts)
    is_last = state_of(proto.status.state).is_terminal
    for each in proto.artifacts:
        artifacts[each.artifact_id] = _complete(_artifact(each, proto), is_last=is_last)
    task = replace(
        add_steps(task, metadata),
        id=proto.id,
        context_id=proto.context_id,
        history=tuple(proto.history),
        artifacts=artifacts,
        metadata=metadata,
        awaited="" if any(one.message_id == task.awaited for one in proto.history) else task.awaited,
    )
    return _with_status(task, proto.status, _usage(metadata))


def _status_update(task: Task, update: pb.TaskStatusUpdateEvent) -> Task:
    task = replace(task, id=update.task_id, context_id=update.context_id)
    metadata = plain_struct(update.metadata)
    data = metadata.pop(EVENTS_EXTENSION, None)
    if isinstance(data, dict):
        task = replace(task, calls={**task.calls, **_changed_call(task, data)})
        if data.get("kind") != "resumed":
            return task  # it repeats the status
    task = replace(task, metadata={**task.metadata, **metadata})
    return _with_status(task, update.status, _usage(metadata))


def _with_status(task: Task, status: pb.TaskStatus, usage: Usage | None) -> Task:
    is_new = (status.state, status.message) != (task.status.state, task.status.message)
    task = replace(
        task,
        status=status if is_new or status.HasField("timestamp") else task.status,
        usage=usage or task.usage,
        awaited=task.awaited if state_of(status.state).is_waiting else "",
    )
    asked = frozenset(question.id for question in task.questions)
    return replace(task, asked=task.asked if task.awaited else asked)


def _artifact_update(task: Task, update: pb.TaskArtifactUpdateEvent) -> Task:
    came, artifact = _artifact(update.artifact, update), task.artifacts.get(update.artifact.artifact_id)
    if update.append:
        old = artifact or replace(came, parts=())
        artifact = replace(
            old,
            parts=joined([*old.parts, *came.parts], to_named=task.is_everloop),
            is_complete=old.is_complete or (update.last_chunk and not came.is_failed),
            is_failed=old.is_failed or came.is_failed,
        )
    else:
        artifact = _complete(came, is_last=update.last_chunk)
    return replace(
        task,
        id=update.task_id,
        context_id=update.context_id,
        artifacts={**task.artifacts, artifact.id: artifact},
    )


def _changed_call(task: Task, data: Mapping[str, Any]) -> Mapping[tuple[str, ...], ToolCall]:
    """Return the call that begins or ends with an event of the extension; lost attempts repeat calls."""
    data, path = event_data(data)
    match data.get("kind"):
        case "tool-call":
            key = (*path, data["call_id"])
            arguments = arguments_of(data.get("arguments"))
            begun = ToolCall(id=data["call_id"], name=data["name"], arguments=arguments)
            return {} if key in task.calls else {key: begun}
        case "tool-complete":
            old = task.calls.get(key := (*path, data["call_id"]))
            ended = replace(ended_call(data), arguments=old.arguments if old else None)
            return {} if old and old.outcome else {key: ended}
        case _:
            return {}


def event_data(
    data: Mapping[str, Any], path: tuple[str, ...] = ()
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return an event of the extension, and the path to the sub-agent of a nested one."""
    if data.get("kind") != "sub-agent":
        return data, path
    inner, down = data.get("event"), data.get("path")
    if not (isinstance(inner, dict) and isinstance(down, list)):
        return {}, path
    nested = {"at": data.get("at"), **cast("dict[str, Any]", inner)}
    return event_data(nested, tuple(map(str, cast("list[object]", down))))


def ended_call(data: Mapping[str, Any]) -> ToolCall:
    """Return a call in an event of its end, or in the steps of a task."""
    return ToolCall(
        id=str(data["call_id"]),
        name=data["name"],
        arguments=arguments_of(data.get("arguments")),
        result=data.get("result"),
        outcome=data.get("outcome") or "",
        is_cut=bool(data.get("cut")),
        url=data.get("url") or "",
    )


_STATES = {
    number: TaskState(name.removeprefix("TASK_STATE_").lower().replace("_", "-"))
    for name, number in pb.TaskState.items()
}


def state_of(state: int) -> TaskState:
    """Return a state of A2A; an unknown one counts as missing."""
    return _STATES.get(state, TaskState.UNSPECIFIED)


def time_of(status: pb.TaskStatus) -> datetime | None:
    """Return the time of a status."""
    return status.timestamp.ToDatetime(UTC) if status.HasField("timestamp") else None


def _complete(artifact: Artifact, *, is_last: bool) -> Artifact:
    return replace(artifact, parts=joined(artifact.parts), is_complete=is_last and not artifact.is_failed)


def _artifact(proto: pb.Artifact, holder: pb.Task | pb.TaskArtifactUpdateEvent) -> Artifact:
    metadata = plain_struct(proto.metadata)
    return Artifact(
        id=proto.artifact_id,
        name=proto.name,
        description=proto.description,
        parts=tuple(Part.of(part) for part in proto.parts),
        context_id=holder.context_id,
        task_id=holder.id if isinstance(holder, pb.Task) else holder.task_id,
        is_failed=metadata.get("status") == "failed",
        metadata=metadata or None,
    )


def _question(described: Mapping[str, JsonValue], at: datetime | None, task_id: str) -> Question:
    options, schema = described.get("options"), described.get("json_schema")
    timeout = described.get("timeout")
    return Question(
        id=str(described.get("id") or ""),
        kind=str(described.get("kind") or "clarification"),
        text=str(described.get("text") or ""),
        options=tuple(str(each) for each in options) if isinstance(options, list) else (),
        json_schema=schema if isinstance(schema, dict) else {},
        tool=str(described.get("tool") or ""),
        arguments=arguments_of(described.get("arguments")),
        purpose=str(described.get("purpose") or "input"),
        approvers=str(described.get("approvers") or "owner"),
        timeout=float(timeout) if isinstance(timeout, int | float) else None,
        at=at,
        task_id=task_id,
    )


def _usage(metadata: Mapping[str, JsonValue]) -> Usage | None:
    used = metadata.get("usage")
    if not isinstance(used, dict):
        return None
    numbers = cast("dict[str, float | None]", used)
    return Usage(
        input_tokens=int(numbers.get("inputTokens") or 0),
        output_tokens=int(numbers.get("outputTokens") or 0),
        cost=numbers.get("cost"),
    )
