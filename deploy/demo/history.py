"""What Temporal's history says of a task: the record that no event stream can embellish."""

import json
from dataclasses import dataclass
from typing import cast

import httpx
from google.protobuf.json_format import ParseDict
from pydantic import BaseModel, Field, JsonValue
from temporalio.api.common.v1 import Payload

from everloop.deploy.demo.errors import DemoError
from everloop.runtime.encryption.cipher import NO_CIPHER, Cipher
from everloop.runtime.encryption.keys import EncryptionSettings
from everloop.runtime.temporal.codec import decrypted
from everloop.workflows.contract.messages import ToolCall, ToolOutcome
from everloop.workflows.contract.ports import ModelPort, ToolPort

MOST_EVENTS = 1_000
"""As many as one page has; a demo task has about a hundred."""


@dataclass(frozen=True)
class RecordedCall:
    """A tool call as history holds it.

    `attempts` counts how often it was handed to a worker; `worker` is the process that reported its end.
    """

    call_id: str
    name: str
    outcome: str
    attempts: int
    worker: str


@dataclass(frozen=True)
class Record:
    """All tool calls of a task, and of each model call how often it was handed to a worker."""

    tool_calls: tuple[RecordedCall, ...]
    model_attempts: tuple[int, ...]


class _Encrypted(BaseModel):
    """Payloads that Temporal cannot read, as they are; others it shows as JSON."""

    payloads: list[JsonValue]


class _ActivityType(BaseModel):
    name: str


class _Scheduled(BaseModel):
    activity_type: _ActivityType = Field(alias="activityType")
    input: list[JsonValue] | _Encrypted


class _Started(BaseModel):
    scheduled_event_id: str = Field(alias="scheduledEventId")
    attempt: int
    identity: str


class _Completed(BaseModel):
    scheduled_event_id: str = Field(alias="scheduledEventId")
    result: list[JsonValue] | _Encrypted


class _Event(BaseModel):
    event_id: str = Field(alias="eventId")
    scheduled: _Scheduled | None = Field(None, alias="activityTaskScheduledEventAttributes")
    started: _Started | None = Field(None, alias="activityTaskStartedEventAttributes")
    completed: _Completed | None = Field(None, alias="activityTaskCompletedEventAttributes")


class _ToolInput(BaseModel):
    """The part of `RunToolInput` that is read here; Temporal's JSON shows empty lists in it as null."""

    call: ToolCall


class _ToolResult(BaseModel):
    """The same of `ToolMessage`."""

    outcome: ToolOutcome = "ok"  # payloads leave out what has its default


class _Events(BaseModel):
    events: list[_Event]


class _Answer(BaseModel):
    history: _Events


@dataclass(frozen=True)
class _Activity:
    scheduled: _Scheduled
    started: _Started
    completed: _Completed


async def fetch_record(temporal_http: str, task_id: str) -> Record:
    """Return what the history of a task holds of its calls, each with its one outcome.

    Raises:
        DemoError: Temporal did not answer, or a call in the history has no outcome.
    """
    url = f"http://{temporal_http}/api/v1/namespaces/default/workflows/{task_id}/history"
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.get(url, params={"maximumPageSize": MOST_EVENTS})
            response.raise_for_status()
    except httpx.HTTPError as error:
        raise DemoError(f"Temporal did not answer with the history of {task_id}: {error}") from error
    return read_record(response.content, EncryptionSettings().cipher)


def read_record(answer: bytes, cipher: Cipher = NO_CIPHER) -> Record:
    """Read Temporal's answer in JSON; `cipher` decrypts what is encrypted in it.

    Raises:
        DemoError: a call in it has no outcome.
    """
    activities = _activities(_Answer.model_validate_json(answer).history.events)
    return Record(
        tool_calls=tuple(
            _recorded(activity, cipher)
            for activity in activities
            if activity.scheduled.activity_type.name == ToolPort.run_tool.__name__
        ),
        model_attempts=tuple(
            activity.started.attempt
            for activity in activities
            if activity.scheduled.activity_type.name == ModelPort.call_model.__name__
        ),
    )


def _activities(events: list[_Event]) -> list[_Activity]:
    """Put the three events of each activity together; Temporal writes the start only with the end."""
    scheduled = {event.event_id: event.scheduled for event in events if event.scheduled}
    started = {event.started.scheduled_event_id: event.started for event in events if event.started}
    completed = {event.completed.scheduled_event_id: event.completed for event in events if event.completed}
    if without := scheduled.keys() - (started.keys() & completed.keys()):
        raise DemoError(f"the history holds {len(without)} calls without an outcome")
    return [_Activity(scheduled[key], started[key], completed[key]) for key in scheduled]


def _first(values: list[JsonValue] | _Encrypted, cipher: Cipher) -> JsonValue:
    if isinstance(values, list):
        return values[0]
    payload = ParseDict(cast("dict[str, JsonValue]", values.payloads[0]), Payload())
    return cast("JsonValue", json.loads(decrypted(payload, cipher).data))


def _recorded(activity: _Activity, cipher: Cipher) -> RecordedCall:
    call = _ToolInput.model_validate(_first(activity.scheduled.input, cipher)).call
    result = _ToolResult.model_validate(_first(activity.completed.result, cipher))
    return RecordedCall(
        call_id=call.id,
        name=call.name,
        outcome=result.outcome,
        attempts=activity.started.attempt,
        worker=activity.started.identity,
    )
