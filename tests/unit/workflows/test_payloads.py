"""Payloads in a history: their form, and complete decoding."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from everloop.agents import limits
from everloop.agents.agent import Agent
from everloop.workflows.contract.agent_settings import Compaction, Memory, ModelSettings
from everloop.workflows.contract.calls import (
    CallModelInput,
    PublishInput,
    RunToolInput,
    SaveContextInput,
    name_task,
)
from everloop.workflows.contract.events import EVENT_ADAPTER, TaskEvent, Thought
from everloop.workflows.contract.messages import (
    AgentMessage,
    AssistantMessage,
    DataPart,
    FilePart,
    Message,
    StoredPartRef,
    TextPart,
    ToolCall,
    ToolMessage,
    TranscriptMessage,
    Usage,
    UserMessage,
)
from everloop.workflows.contract.names import derive_context_id
from everloop.workflows.contract.payloads import WIRE_DATA_CONVERTER, Wire, WirePayloadConverter
from everloop.workflows.contract.tasks import AgentSpec, TaskRef, TaskState, TaskStatus, ToolSpec
from everloop.workflows.state import CarriedTask, TaskRunState

CONVERTER = WirePayloadConverter()
NOW = datetime(2026, 11, 1, tzinfo=UTC)
CALL = ToolCall(id="c", name="n", arguments="{}")
HELLO = UserMessage(message_id="m", parts=(TextPart(text="Hello"),))


def wire_types(base: type[Wire] = Wire) -> Iterator[type[Wire]]:
    for each in base.__subclasses__():
        yield each
        yield from wire_types(each)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (HELLO, Message),
        (AgentMessage(message_id="m", parts=(DataPart(data=None), DataPart(data={"a": 0}))), Message),
        (
            UserMessage(message_id="m", parts=(FilePart(size=0, stored=StoredPartRef(artifact_id="a")),)),
            Message,
        ),
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
    """Omitted fields come back."""
    assert CONVERTER.from_payload(CONVERTER.to_payload(value), hint) == value


def test_a_state_that_is_carried_is_read() -> None:
    """With all of its task, in a fraction of the bytes."""
    state = TaskRunState.begin(HELLO, NOW)
    state.status = TaskStatus(state=TaskState.WORKING, at=NOW)
    task = CarriedTask(
        message=HELLO, context_id="c", owner="o", created_at=NOW, agent=AgentSpec(id="a"), carried=state
    )
    payload = CONVERTER.to_payload(task)
    assert CONVERTER.from_payload(payload, CarriedTask) == task
    assert len(payload.data) < len(task.model_dump_json()) / 3


@pytest.mark.parametrize("context_id", [derive_context_id("t"), "its own"])
def test_an_activity_learns_of_which_task_it_is_from_temporal(context_id: str) -> None:
    """Also within the payload of a call; a context that a client named is written."""
    task = TaskRef(task_id="t", run_id="r", context_id=context_id, owner="o", agent_id="a")
    remember = SaveContextInput(task=task, length=1, memory=Memory())
    call = PublishInput(task=task, events=(), remember=remember)
    payload = CONVERTER.to_payload(call)
    assert {"run_id", "task_id"}.isdisjoint(json.loads(payload.data)["task"])
    assert name_task(CONVERTER.from_payload(payload, PublishInput), "t", "r") == call


def test_what_a_newer_version_added_is_ignored() -> None:
    """Also in definitions of authors, unlike in `everloop.agents.limits`, which refuses it."""
    newer = (
        '{"id": "a", "later": 1, "memory": {"max_messages": 3, "later": 1}, "compaction": {"later": 1}, '
        '"settings": {"seed": 1, "later": 1}}'
    )
    read = AgentSpec.model_validate_json(newer)
    assert read == AgentSpec(
        id="a", memory=Memory(max_messages=3), compaction=Compaction(), settings=ModelSettings(seed=1)
    )


SECRET = "what the user wrote"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (CallModelInput.model_validate_json, f'{{"new": ["{SECRET}"], "task": "{SECRET}"}}'),
        (EVENT_ADAPTER.validate_json, f'{{"kind": "warning", "text": ["{SECRET}"]}}'),
        (EVENT_ADAPTER.validate_json, f'["{SECRET}"]'),
        (AgentSpec.model_validate_json, f'{{"id": "one", "memory": {{"strategy": "{SECRET}"}}}}'),
    ],
)
def test_an_error_shows_no_value(parse: Callable[[str], object], text: str) -> None:
    """Errors are written to logs and workflow histories, which hold no content."""
    with pytest.raises(ValidationError) as caught:
        parse(text)
    assert SECRET not in str(caught.value)


def test_what_an_author_defines_arrives_as_what_a_task_pins() -> None:
    """Each setting of it, without those that have their default."""
    convert = WIRE_DATA_CONVERTER.payload_converter
    asked: dict[str, Any] = {"stop": ["#"], "extra_body": {"k": None}, "first_token": timedelta(seconds=3)}
    spec = Agent(
        "one",
        "A",
        "",
        memory=limits.Memory(5),
        compaction=limits.Compaction("summary"),
        settings=limits.ModelSettings(**asked),
    ).spec
    payload = convert.to_payload(spec)
    written = json.loads(payload.data)
    assert written["memory"] == {"max_messages": 5}
    assert written["settings"] == {"stop": ["#"], "extra_body": {"k": None}, "first_token": "PT3S"}
    pinned = convert.from_payload(payload, AgentSpec)
    assert (pinned.memory, pinned.compaction) == (Memory(5), Compaction("summary"))
    assert pinned.settings == ModelSettings(**asked)


def test_tasks_of_an_agent_share_its_specification_as_long_as_it_is_the_same() -> None:
    """A worker of a thousand tasks has the pinned agent once; another version is its own."""
    spec = AgentSpec(id="shared", tools={"search": ToolSpec(timeout=5)})
    first, second, changed = (_decoded(_begun(each)) for each in (spec, spec, _another_version(spec)))
    assert first.agent is second.agent
    assert changed.agent == _another_version(spec)
    assert first.agent == spec


def _another_version(spec: AgentSpec) -> AgentSpec:
    return spec.model_copy(update={"version": "2"})


def _begun(agent: AgentSpec) -> CarriedTask:
    return CarriedTask(context_id="c", owner="o", message=HELLO, created_at=NOW, agent=agent)


def _decoded(task: CarriedTask) -> CarriedTask:
    (decoded,) = CONVERTER.from_payloads(CONVERTER.to_payloads([task]), [CarriedTask])
    assert isinstance(decoded, CarriedTask)
    return decoded


@pytest.mark.parametrize("named", ["m", "m-2026", ""])
@pytest.mark.parametrize(("calls", "ended"), [((CALL,), "tool_calls"), ((CALL,), "length"), ((), "stop")])
def test_a_reply_is_kept_without_what_the_rest_of_it_says(
    named: str, calls: tuple[ToolCall, ...], ended: str
) -> None:
    """Readers get the model and the reason for its end, as in a reply that stored both."""
    whole = AssistantMessage(tool_calls=calls, model=named, finish_reason=ended, source="provider/m")
    kept = whole.to_keep()

    assert (
        (kept.answered_by, kept.ended_with) == (named or "m", ended) == (whole.answered_by, whole.ended_with)
    )
    is_short = named in {"m", ""} and ended != "length" and bool(calls)
    assert (not kept.model and not kept.finish_reason) == is_short


def test_a_tool_call_tells_its_reply_where_that_is_not_the_message_before_its_result() -> None:
    """The first call of a reply needs no `reply`; an input that has it is read as before."""
    task = TaskRef(owner="o", agent_id="a")
    first = RunToolInput(task=task, call=CALL, position=14)
    assert first.reply_position == first.model_copy(update={"reply": 13}).reply_position == 13
    assert RunToolInput(task=task, call=CALL, position=15, reply=13).reply_position == 13
