"""Events of sub-agents in their task's stream: each once, and none after its end."""

import json
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from everloop.stores.log.forwarding import MAX_CUT_CHARACTERS, MAX_FORWARDED_BYTES, forwarded
from everloop.stores.log.log_store import TaskViews
from everloop.workflows.contract.events import (
    Narrated,
    SubAgentEvent,
    TaskEvent,
    ToolCalled,
    Warned,
)
from everloop.workflows.contract.names import child_task_id
from everloop.workflows.contract.parts import MAX_DEPTH
from everloop.workflows.contract.tasks import TaskState, TaskView
from tests.stores.examples import asked, chunk, data, said, status, stream_of, submitted, told

CALLED = ToolCalled(iteration=1, call_id="c", name="search", arguments="{}")


async def working(views: TaskViews) -> TaskView:
    """Return a client's task at work."""
    view = submitted()
    await views.create(view)
    await views.publish(view.task_id, "run", [status(1)])
    return view


async def heard(views: TaskViews, task_id: str) -> list[TaskEvent]:
    """Return the events of a task's stream since `working`."""
    return (await stream_of(views, task_id))[2:]


def as_told(event: TaskEvent, *path: str) -> SubAgentEvent:
    """Return an event as it is forwarded in full."""
    return SubAgentEvent(path=path or ("call",), event=event.model_dump(mode="json", exclude={"content"}))


async def test_events_of_sub_agents_reach_the_task_above_with_their_path(task_views: TaskViews) -> None:
    """Events of sub-agents of any depth reach their own streams and, with their path, the top task's."""
    task_id = (await working(task_views)).task_id
    child_id = child_task_id(task_id, "call")
    grandchild_id = child_task_id(child_id, "deeper")

    await task_views.publish(child_id, "run-c", [CALLED])
    await task_views.publish(grandchild_id, "run-d", [chunk("a"), Narrated(text="Reading")])
    await task_views.publish(child_id, "run-c", [Warned(text="w")])

    assert await heard(task_views, task_id) == [
        as_told(CALLED),
        as_told(chunk("a"), "call", "deeper"),
        as_told(Narrated(text="Reading"), "call", "deeper"),
        as_told(Warned(text="w")),
    ]
    assert await stream_of(task_views, child_id) == [CALLED, Warned(text="w")]
    assert await stream_of(task_views, grandchild_id) == [chunk("a"), Narrated(text="Reading")]


async def test_what_the_fold_drops_is_not_forwarded(task_views: TaskViews) -> None:
    """Repeated statuses and chunks, and events of an overtaken run, are not forwarded."""
    task_id = (await working(task_views)).task_id
    child_id = child_task_id(task_id, "call")
    batch = [status(1), chunk("a")]

    await task_views.publish(child_id, "run-a", batch)
    await task_views.publish(child_id, "run-a", batch)
    await task_views.publish(child_id, "run-b", [status(1)])
    await task_views.publish(child_id, "run-a", [Warned(text="late")])

    kinds = [
        event.event["kind"] for event in await heard(task_views, task_id) if isinstance(event, SubAgentEvent)
    ]
    assert kinds == ["status", "artifact-chunk", "status"]


@pytest.mark.parametrize("state", TaskState)
async def test_nothing_follows_the_end_of_the_task(task_views: TaskViews, state: TaskState) -> None:
    """A late sub-agent's events do not follow the end of the task; while the task waits, they do."""
    task_id = (await working(task_views)).task_id
    child_id = child_task_id(task_id, "call")
    await task_views.publish(task_id, "run", [status(2, state)])

    await task_views.publish(child_id, "run-c", [CALLED])

    forwarded = [] if state.is_terminal else [as_told(CALLED)]
    assert await heard(task_views, task_id) == [status(2, state), *forwarded]
    assert await stream_of(task_views, child_id) == [CALLED]
    unknown = submitted().task_id
    await task_views.publish(child_task_id(unknown, "call"), "run-c", [CALLED])
    assert await stream_of(task_views, unknown) == []


def test_a_status_comes_without_what_the_agents_told_each_other() -> None:
    """A status is forwarded with its message and usage, without requests, answers and questions."""
    hidden, asks = (said("m", "hidden"),), (asked("hidden"),)
    event = status(2, TaskState.INPUT_REQUIRED, message=told("t"), received=hidden, questions=asks)

    told_event = forwarded("task/call", event)

    assert told_event
    assert told_event.event["state"] == "input-required"
    assert "message" in told_event.event
    assert "hidden" not in told_event.model_dump_json()


def deep(levels: int) -> JsonValue:
    value: JsonValue = "x"
    for _ in range(levels):
        value = [value]
    return value


LARGE = "ü" * MAX_FORWARDED_BYTES
CUT: Mapping[str, tuple[TaskEvent, dict[str, JsonValue]]] = {
    "a large chunk": (
        chunk(LARGE, artifact_id="log", index=3, position=7),
        {"artifact_id": "log", "index": 3, "position": 7, "last_chunk": False},
    ),
    "a chunk that protobuf cannot hold": (
        chunk("", part=data().model_copy(update={"data": deep(MAX_DEPTH)})),
        {"artifact_id": "response"},
    ),
    "large arguments": (
        CALLED.model_copy(update={"arguments": LARGE}),
        {"call_id": "c", "arguments": f"{LARGE[:MAX_CUT_CHARACTERS]}…"},
    ),
    "a large status": (
        status(2, TaskState.FAILED, message=told("t", LARGE)),
        {"state": "failed", "version": 2},
    ),
}


@pytest.mark.parametrize("name", CUT)
def test_of_what_is_too_large_its_short_fields_are_forwarded(name: str) -> None:
    """A large event is forwarded with its short fields: the fact and the place without the content."""
    event, kept = CUT[name]

    cut = forwarded("task/call", event)

    assert cut
    assert {**cut.event, "kind": event.kind, **kept, "cut": True} == cut.event
    assert not {"part", "message"} & set(cut.event)
    assert len(json.dumps(cut.event)) < MAX_FORWARDED_BYTES
