"""State of a task on the client: A2A updates go in, events come out. Pure.

A snapshot (a complete task) is compared with the known state, so that only changes become events,
however often the connection is made again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from a2a.types import a2a_pb2 as pb
from pydantic import JsonValue

from everloop.client.content import Artifact, Part, joined, plain, plain_struct, text_of
from everloop.client.events import (
    ArtifactChanged,
    Event,
    OtherEvent,
    Progress,
    Question,
    Result,
    StatusChanged,
    TaskState,
    TextDelta,
    Thought,
    ToolCall,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    arguments_of,
)

EVENTS_EXTENSION = "https://everloop.dev/extensions/events/v1"
"""The extension with all events of a task."""

RESPONSE = "response"
"""The artifact that carries the answer of an Everloop."""


class TaskFold:
    """The known state of one task.

    `is_everloop`: the server marks the artifact that is the answer; of others, all texts are. `awaited`
    is the id of a message that answers a question: until the task has received it, its open question is
    old. `is_partial`: earlier events are missing.
    """

    def __init__(self, *, is_everloop: bool, awaited: str = "", is_partial: bool = False) -> None:
        self.task_id = ""
        self.state = TaskState.UNSPECIFIED
        self.is_whole = not is_partial
        """Whether all events of the task were received."""
        self.is_direct = False
        """Whether the agent answered without a task."""
        self._is_everloop = is_everloop
        self._is_partial = is_partial
        self._awaited = awaited
        self._context_id = ""
        self._status = pb.TaskStatus()
        self._metadata: dict[str, JsonValue] = {}
        self._usage: Usage | None = None
        self._artifacts: dict[str, Artifact] = {}
        self._calls: dict[tuple[str, ...], ToolCall] = {}
        """By path and id, including those of sub-agents."""
        self._asked: set[str] = set()
        self._last_words = ""
        self._events: list[Event | None] = []
        self._changes: dict[str, int] = {}
        """Index of each artifact's last change among the events: it includes the earlier ones."""

    @property
    def is_taken_in(self) -> bool:
        """Whether the task has received the sent message."""
        return not self._awaited

    def apply(self, response: pb.StreamResponse, event_id: str) -> list[Event]:
        """Apply an update; return the new events."""
        match response.WhichOneof("payload"):
            case "task":
                events = self._task(response.task)
            case "message":
                events = self._message(response.message)
            case "status_update":
                events = self._status_update(response.status_update)
            case "artifact_update":
                events = self._artifact_update(response.artifact_update)
            case _:
                events = iter(())
        return self._noted(events, event_id)

    def lacks_calls(self, task: pb.Task) -> bool:
        """Whether a snapshot leaves out the task's calls, as those in streams do."""
        is_new = state_of(task.status.state) is TaskState.SUBMITTED
        return not is_new and _steps(plain_struct(task.metadata)) is None

    def catch_up(self, task: pb.Task, event_id: str) -> list[Event]:
        """Add the calls of a task that was read, because a snapshot lacks them; return the new events."""
        self.task_id, metadata = task.id, plain_struct(task.metadata)
        self.is_whole = not self._is_partial and _steps(metadata) is not None
        return self._noted(self._read_steps(metadata), event_id)

    def _noted(self, events: Iterator[Event], event_id: str) -> list[Event]:
        named = [replace(each, task_id=each.task_id or self.task_id, event_id=event_id) for each in events]
        for each in named:
            self.note(each)
        return named

    def note(self, event: Event) -> Event:
        """Record an event."""
        if isinstance(event, ArtifactChanged):
            if (place := self._changes.get(event.artifact.id)) is not None:
                self._events[place] = None
            self._changes[event.artifact.id] = len(self._events)
        self._events.append(event)
        return event

    def result(self) -> Result:
        """Return the current state of the task."""
        said = text_of(self._status.message.parts)
        is_bad = self.state.is_terminal and self.state is not TaskState.COMPLETED
        answer = self._artifacts.get(RESPONSE)
        others = [one for one in self._artifacts.values() if one.id != RESPONSE]
        reason = plain_struct(self._status.message.metadata).get("reason") or self._metadata.get("reason")
        data = answer.data if answer else next((one.data for one in others if one.data is not None), None)
        return Result(
            id=self.task_id,
            context_id=self._context_id,
            state=self.state,
            text=self._text(said if self.state is TaskState.COMPLETED else ""),
            data=data,
            artifacts=tuple(others),
            tool_calls=tuple(call for path, call in self._calls.items() if len(path) == 1),
            usage=self._usage,
            questions=self._questions() if self.state.is_waiting else (),
            events=tuple(filter(None, self._events)),
            error=(said or f"the task is {self.state}") if is_bad else None,
            reason=str(reason or ""),
            updated_at=_time(self._status),
            metadata={key: value for key, value in self._metadata.items() if key != EVENTS_EXTENSION},
        )

    def _text(self, said: str) -> str:
        """Return the answer. A server without an artifact of its name may use any other, or the status."""
        if answer := self._artifacts.get(RESPONSE):
            return answer.text
        if self._is_everloop and not self.is_direct:
            return ""
        texts = [one.text.strip() for one in self._artifacts.values()]
        words = dict.fromkeys(filter(None, [*texts, said.strip()]))
        return "\n\n".join(words) or self._last_words

    # Complete tasks, and answers without one.

    def _message(self, message: pb.Message) -> Iterator[Event]:
        self.is_direct, self.state = True, TaskState.COMPLETED
        self._context_id, self._metadata = message.context_id, plain_struct(message.metadata)
        self._usage = _usage(self._metadata)
        parts = tuple(Part.of(part) for part in message.parts)
        self._artifacts[RESPONSE] = Artifact(id=RESPONSE, parts=joined(parts), is_complete=True)
        yield TextDelta(text=self._artifacts[RESPONSE].text)

    def _task(self, task: pb.Task) -> Iterator[Event]:
        self.task_id, self._context_id = task.id, task.context_id
        self._metadata = plain_struct(task.metadata)
        if self._awaited in {message.message_id for message in task.history}:
            self._awaited = ""
        agents = [message for message in task.history if message.role == pb.Role.ROLE_AGENT]
        self._last_words = text_of(agents[-1].parts) if agents else ""
        yield from self._read_steps(self._metadata)
        for proto in task.artifacts:
            yield from self._replace(_artifact(proto, task), is_last=task.status.state in _TERMINAL)
        yield from self._changed_status(task.status, _usage(self._metadata))

    def _read_steps(self, metadata: Mapping[str, JsonValue]) -> Iterator[Event]:
        """Add the calls in the metadata of a task; yield those whose end is new."""
        for step in _steps(metadata) or ():
            for call in step.get("calls", []):
                key, now = (str(call["call_id"]),), _ended_call(call)
                if (known := self._calls.get(key)) and known.outcome:
                    continue
                self._calls[key] = now
                if now.outcome:
                    yield ToolCallEnded(call=now)

    # Updates of the status, and the events in them.

    def _status_update(self, update: pb.TaskStatusUpdateEvent) -> Iterator[Event]:
        self.task_id, self._context_id = update.task_id, update.context_id
        metadata = plain_struct(update.metadata)
        data = metadata.pop(EVENTS_EXTENSION, None)
        if isinstance(data, dict):
            yield from self._extension_event(data)
            if data.get("kind") != "resumed":
                return  # it repeats the status
        self._metadata |= metadata
        yield from self._changed_status(update.status, _usage(metadata))

    def _changed_status(self, status: pb.TaskStatus, usage: Usage | None) -> Iterator[Event]:
        state = state_of(status.state)
        is_new = (state, status.message) != (self.state, self._status.message)
        self.state, self._usage = state, usage or self._usage
        if is_new or status.HasField("timestamp"):
            self._status = status
        if not state.is_waiting:
            self._awaited = ""
            self._asked.clear()
        if is_new:
            text = text_of(status.message.parts)
            yield StatusChanged(state=state, text=text, usage=usage, at=_time(status))
        if state.is_waiting and self.is_taken_in:
            for question in self._questions():
                if question.id not in self._asked:
                    self._asked.add(question.id)
                    yield question

    def _questions(self) -> tuple[Question, ...]:
        """Return the questions of the status: in Everloop's format, or its text."""
        message, at = self._status.message, _time(self._status)
        for part in message.parts:
            data = plain(part.data) if part.HasField("data") else None
            described = data.get("questions") if isinstance(data, dict) else None
            if isinstance(described, list) and described:
                return tuple(
                    _question(each, at, self.task_id) for each in described if isinstance(each, dict)
                )
        kind = "auth" if self.state is TaskState.AUTH_REQUIRED else "clarification"
        return (Question(kind=kind, text=text_of(message.parts), at=at, task_id=self.task_id),)

    def _extension_event(self, data: Mapping[str, JsonValue], path: tuple[str, ...] = ()) -> Iterator[Event]:
        """Yield an event of the extension; one of a sub-agent is nested in another."""
        at = _moment(data.get("at"))
        if data.get("kind") == "sub-agent":
            inner, down = data.get("event"), data.get("path")
            if isinstance(inner, dict) and isinstance(down, list):
                names = tuple(str(each) for each in down)
                yield from self._extension_event({"at": data.get("at"), **inner}, names)
            return
        event = _event(data)
        news = self._news(event, path) if isinstance(event, ToolCallStarted | ToolCallEnded) else event
        if news:
            yield replace(news, at=at, path=path)

    def _news(self, event: ToolCallStarted | ToolCallEnded, path: tuple[str, ...]) -> Event | None:
        """Record a call; None if it is not new. Retried attempts repeat earlier calls."""
        key = (*path, event.call_id)
        known = self._calls.get(key)
        if isinstance(event, ToolCallStarted):
            if known is None:
                self._calls[key] = ToolCall(id=event.call_id, name=event.name, arguments=event.arguments)
            return None if known else event
        if known and known.outcome:
            return None
        self._calls[key] = replace(event.call, arguments=known.arguments if known else None)
        return replace(event, call=self._calls[key])

    # Artifacts.

    def _artifact_update(self, update: pb.TaskArtifactUpdateEvent) -> Iterator[Event]:
        self.task_id, self._context_id = update.task_id, update.context_id
        came = _artifact(update.artifact, update)
        if not update.append:
            yield from self._replace(came, is_last=update.last_chunk)
            return
        known = self._artifacts.get(came.id) or replace(came, parts=())
        grown = replace(
            known,
            parts=joined([*known.parts, *came.parts], to_named=self._is_everloop),
            is_complete=known.is_complete or (update.last_chunk and not came.is_failed),
            is_failed=known.is_failed or came.is_failed,
        )
        if grown == self._artifacts.get(came.id):
            return
        self._artifacts[came.id] = grown
        yield from self._deltas(grown, "".join(part.text or "" for part in came.parts), starts_over=False)

    def _replace(self, came: Artifact, *, is_last: bool) -> Iterator[Event]:
        """Replace an artifact by a complete one."""
        came = replace(came, parts=joined(came.parts), is_complete=is_last and not came.is_failed)
        known = self._artifacts.get(came.id)
        if known == came:
            return
        self._artifacts[came.id] = came
        before, after = known.text if known else "", came.text
        if after.startswith(before):
            yield from self._deltas(came, after[len(before) :], starts_over=False)
        elif self._is_partial and is_last and after.endswith(before):
            yield from self._deltas(came, "", starts_over=False)  # its beginning came before the subscription
        else:
            yield from self._deltas(came, after, starts_over=True)

    def _deltas(self, artifact: Artifact, text: str, *, starts_over: bool) -> Iterator[Event]:
        is_answer = artifact.id == RESPONSE
        is_said = is_answer or not self._is_everloop
        if is_said and (text or starts_over):
            yield TextDelta(text=text, starts_over=starts_over, artifact_id=artifact.id)
        if not is_answer:
            yield ArtifactChanged(artifact=artifact)


def result_of(task: pb.Task, *, is_everloop: bool) -> Result:
    """Return the result of a task that was only read."""
    fold = TaskFold(is_everloop=is_everloop)
    fold.apply(pb.StreamResponse(task=task), "")
    return replace(fold.result(), events=())


def _steps(metadata: Mapping[str, JsonValue]) -> list[dict[str, Any]] | None:
    """Return the calls of model and tools in the metadata, None if they have none."""
    about = metadata.get(EVENTS_EXTENSION)
    return cast("list[dict[str, Any]] | None", about.get("steps")) if isinstance(about, dict) else None


_STATES = {
    number: TaskState(name.removeprefix("TASK_STATE_").lower().replace("_", "-"))
    for name, number in pb.TaskState.items()
}
_TERMINAL = frozenset(number for number, state in _STATES.items() if state.is_terminal)


def state_of(state: int) -> TaskState:
    """Return a state of A2A; an unknown one counts as missing."""
    return _STATES.get(state, TaskState.UNSPECIFIED)


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


def _time(status: pb.TaskStatus) -> datetime | None:
    return status.timestamp.ToDatetime(UTC) if status.HasField("timestamp") else None


def _moment(text: JsonValue) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None


# Events of the extension, by their kind.

_Data = Mapping[str, Any]


def _ended_call(data: _Data) -> ToolCall:
    return ToolCall(
        id=data["call_id"],
        name=data["name"],
        arguments=arguments_of(data.get("arguments")),
        result=data.get("result"),
        outcome=data.get("outcome") or "",
        is_cut=bool(data.get("cut")),
        url=data.get("url") or "",
    )


def _event(data: _Data) -> Event:
    match data.get("kind"):
        case "thought":
            return Thought(text=data["text"], is_last=bool(data.get("last")))
        case "narration":
            return Progress(text=data["text"])
        case "tool-call":
            arguments = arguments_of(data.get("arguments"))
            return ToolCallStarted(call_id=data["call_id"], name=data["name"], arguments=arguments)
        case "tool-progress":
            return Progress(text=data["message"], call_id=data["call_id"], tool=data["name"])
        case "tool-complete":
            return ToolCallEnded(call=_ended_call(data))
        case kind:
            rest = {key: value for key, value in data.items() if key not in {"kind", "at"}}
            return OtherEvent(kind=str(kind), data=rest)
