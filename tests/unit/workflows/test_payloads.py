"""What payloads look like in a history, and that nothing is lost in them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, get_args, get_origin

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from everloop.agents.agent import Agent
from everloop.workflows.contract.events import TaskEvent, Thought
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    DataPart,
    FilePart,
    Message,
    StoredPart,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.payloads import Wire, WirePayloadConverter
from everloop.workflows.contract.tasks import AgentSpec, TaskInput, TaskState, TaskStatus
from everloop.workflows.state import CarriedTask, TaskRunState

CONVERTER = WirePayloadConverter()
NOW = datetime(2026, 11, 1, tzinfo=UTC)
HELLO = UserMessage(message_id="m", parts=(TextPart(text="Hello"),))


def written(value: object) -> dict[str, dict[str, object]]:
    fields: dict[str, dict[str, object]] = json.loads(CONVERTER.to_payload(value).data)
    return fields


def wire_types(base: type[Wire] = Wire) -> Iterator[type[Wire]]:
    for each in base.__subclasses__():
        yield each
        yield from wire_types(each)


def tags(wire_type: type[Wire]) -> dict[str, object]:
    """Fields of one value alone: what a union goes by."""
    return {
        name: field.default
        for name, field in wire_type.model_fields.items()
        if get_origin(field.annotation) is Literal and get_args(field.annotation) == (field.default,)
    }


def test_a_task_begins_with_what_was_asked() -> None:
    """Then comes what else was said of it; of a plain agent that is its id and its version."""
    agent = Agent(id="weather", name="Weather", description="Knows the weather.", model="m", version="1")
    task = written(
        TaskInput(message=HELLO, context_id="c", owner="o", created_at=NOW, agent=agent.spec, digest="d")
    )

    assert list(task) == ["message", "context_id", "owner", "created_at", "agent", "digest"]
    assert task["message"] == {
        "role": "user",
        "message_id": "m",
        "parts": [{"kind": "text", "text": "Hello"}],
    }
    limits = {"compaction", "max_tool_failures", "max_sub_agents", "memory"}  # an agent has some unless told
    assert task["agent"].keys() == {"id", "model", "version", *limits}


def test_every_tag_is_written() -> None:
    """A union is read by it, although it is the default of its field."""
    tagged = [wire_type for wire_type in wire_types() if tags(wire_type)]
    assert len(tagged) > 20
    for wire_type in tagged:
        assert written(wire_type.model_construct()).items() >= tags(wire_type).items(), wire_type


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (HELLO, Message),
        (AgentMessage(message_id="m", parts=(DataPart(data=None), DataPart(data={"a": 0}))), Message),
        (UserMessage(message_id="m", parts=(FilePart(size=0, stored=StoredPart(artifact_id="a")),)), Message),
        (AssistantMessage(text="", tool_calls=(ToolCall(id="", name="", arguments=""),)), TranscriptMessage),
        (ToolMessage(call_id="c", name="n", content="", outcome="error"), TranscriptMessage),
        (Thought(iteration=0, text=""), TaskEvent),
        (Usage(), Usage),
        (None, None),
        (7, int),
    ],
    ids=["text", "data", "file", "reply", "result", "event", "empty", "none", "number"],
)
def test_what_is_written_is_read(value: object, hint: type) -> None:
    """Whatever was left out comes back."""
    assert CONVERTER.from_payload(CONVERTER.to_payload(value), hint) == value


def test_a_state_that_is_carried_is_read() -> None:
    """With all that its task knows, in a fraction of the bytes."""
    state = TaskRunState.begin(HELLO, NOW)
    state.status = TaskStatus(state=TaskState.WORKING, at=NOW)
    task = CarriedTask(
        message=HELLO, context_id="c", owner="o", created_at=NOW, agent=AgentSpec(id="a"), carried=state
    )

    payload = CONVERTER.to_payload(task)

    assert CONVERTER.from_payload(payload, CarriedTask) == task
    assert len(payload.data) < len(task.model_dump_json()) / 3


def test_what_is_no_json_is_an_error_where_a_type_is_expected() -> None:
    """Where none is, it stays as it is."""
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b"{no}")
    with pytest.raises(ValueError, match="JSON"):
        CONVERTER.from_payload(payload, Usage)
    assert isinstance(CONVERTER.from_payload(payload), RawValue)
