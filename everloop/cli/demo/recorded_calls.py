"""Temporal's history of a task: the authoritative record of its calls."""

from collections.abc import Iterable
from dataclasses import dataclass

from temporalio.api.history.v1 import (
    ActivityTaskCompletedEventAttributes,
    ActivityTaskScheduledEventAttributes,
    ActivityTaskStartedEventAttributes,
    HistoryEvent,
)
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from everloop.runtime.encryption.key_file import EncryptionSettings
from everloop.runtime.temporal.blob_payloads import data_converter
from everloop.workflows.contract.calls import RunToolInput
from everloop.workflows.contract.messages import ToolMessage
from everloop.workflows.contract.ports import ModelPort, ToolPort


class DemoError(Exception):
    """The demo did not show the expected result; the message is for the user."""


@dataclass(frozen=True)
class RecordedCall:
    """A tool call in history.

    `attempts` counts its starts by workers; `worker` is the process that reported its end.
    """

    call_id: str
    name: str
    outcome: str
    attempts: int
    worker: str


@dataclass(frozen=True)
class Record:
    """All tool calls of a task, and the number of attempts of each model call."""

    tool_calls: tuple[RecordedCall, ...]
    model_attempts: tuple[int, ...]


@dataclass(frozen=True)
class _Activity:
    scheduled: ActivityTaskScheduledEventAttributes
    started: ActivityTaskStartedEventAttributes
    completed: ActivityTaskCompletedEventAttributes


async def fetch_record(temporal_address: str, task_id: str) -> Record:
    """Return the calls in the history of a task, each with its one outcome.

    Raises:
        DemoError: Temporal did not answer, or a call in the history has no outcome.
    """
    converter = data_converter(None, cipher=EncryptionSettings().cipher)
    try:
        client = await Client.connect(temporal_address)
        history = await client.get_workflow_handle(task_id).fetch_history()
    except (RPCError, RuntimeError) as error:
        raise DemoError(f"Temporal did not answer with the history of {task_id}: {error}") from error
    return await read_record(history.events, converter)


async def read_record(events: Iterable[HistoryEvent], converter: DataConverter) -> Record:
    """Read the events of a history.

    Raises:
        DemoError: a call in it has no outcome.
    """
    activities = _activities(list(events))
    of_tools = [each for each in activities if _is_call(each, ToolPort.run_tool.__name__)]
    return Record(
        tool_calls=tuple([await _recorded(each, converter) for each in of_tools]),
        model_attempts=tuple(
            each.started.attempt for each in activities if _is_call(each, ModelPort.call_model.__name__)
        ),
    )


def _activities(events: list[HistoryEvent]) -> list[_Activity]:
    """Group the three events of each activity; Temporal writes the start only with the end."""
    scheduled = {
        event.event_id: event.activity_task_scheduled_event_attributes
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    started = {
        (at := event.activity_task_started_event_attributes).scheduled_event_id: at for event in events
    }
    completed = {
        (at := event.activity_task_completed_event_attributes).scheduled_event_id: at for event in events
    }
    if without := scheduled.keys() - (started.keys() & completed.keys()):
        raise DemoError(f"the history holds {len(without)} calls without an outcome")
    return [_Activity(scheduled[key], started[key], completed[key]) for key in scheduled]


def _is_call(activity: _Activity, name: str) -> bool:
    return activity.scheduled.activity_type.name == name


async def _recorded(activity: _Activity, converter: DataConverter) -> RecordedCall:
    (given,) = await converter.decode(activity.scheduled.input.payloads, [RunToolInput])
    (result,) = await converter.decode(activity.completed.result.payloads, [ToolMessage])
    return RecordedCall(
        call_id=given.call.id,
        name=given.call.name,
        outcome=result.outcome,
        attempts=activity.started.attempt,
        worker=activity.started.identity,
    )
