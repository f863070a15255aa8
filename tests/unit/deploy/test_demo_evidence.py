"""The demo proves what it says: it fails when a run or an effect is missing, doubled, or of nobody."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payloads

from everloop.deploy.demo.conversation import Arrival, StatusArrived, TaskAccepted, TextArrived
from everloop.deploy.demo.count import Count
from everloop.deploy.demo.errors import DemoError
from everloop.deploy.demo.evidence import Evidence, Midway, written_by
from everloop.deploy.demo.history import Record, RecordedCall, read_record
from everloop.runtime.temporal.payloads import data_converter
from everloop.workflows.contract.events import (
    IterationStarted,
    Thought,
    ToolCalled,
    ToolCompleted,
    ToolStarted,
)
from tests.support.encryption import keyring


def called(call_id: str, name: str) -> Arrival:
    return ToolCalled(iteration=1, call_id=call_id, name=name, arguments="{}")


def started(call_id: str, name: str, attempt: int = 1) -> Arrival:
    return ToolStarted(call_id=call_id, name=name, attempt=attempt)


def ended(call_id: str, name: str) -> Arrival:
    return ToolCompleted(call_id=call_id, name=name, outcome="ok", result="", size=0)


def evidence(*arrivals: Arrival) -> Evidence:
    folded = Evidence()
    for arrival in arrivals:
        folded.take(arrival)
    return folded


def ran(call_id: str, name: str = "read_file") -> tuple[Arrival, ...]:
    return called(call_id, name), started(call_id, name), ended(call_id, name)


def model_call(*words: str) -> tuple[Arrival, ...]:
    return IterationStarted(iteration=1, model="m"), *(TextArrived(word, append=True) for word in words)


RESULTS = (*model_call("I "), *ran("1"), *ran("2"), *ran("3"))
SILENT = (*RESULTS, *model_call(), *ran("4"))


@pytest.mark.parametrize(
    ("arrivals", "moment"),
    [
        (RESULTS, None),
        ((*RESULTS, *model_call("Now ", "I ")), len(RESULTS) + 1),
        ((*RESULTS, *model_call(), Thought(iteration=2, text="hm")), len(RESULTS) + 1),
        ((*RESULTS, TextArrived("", append=False), StatusArrived("working", "I ")), None),
        ((*RESULTS, called("4", "note"), *model_call("Now ")), None),
        ((*RESULTS, started("4", "note"), *model_call("Now ")), None),
        ((*ran("1"), *ran("2"), *model_call("Now ")), None),
        (SILENT, None),
        ((*SILENT, *model_call()), len(SILENT)),
    ],
)
def test_the_worker_is_killed_while_the_model_writes_and_no_tool_runs(
    arrivals: Sequence[Arrival], moment: int | None
) -> None:
    """At the first text after three results; if the model said nothing there, when it is asked next."""
    midway = Midway()

    reached = [midway.is_reached_by(arrival) for arrival in arrivals]

    assert (reached.index(True) if any(reached) else None) == moment


def recorded(call_id: str, name: str = "read_file", outcome: str = "ok", attempts: int = 1) -> RecordedCall:
    return RecordedCall(call_id, name, outcome, attempts, worker=f"worker-of-{call_id}")


CALLS = (recorded("1"), recorded("2", "note"), recorded("3", "note", "error"))
RIGHT = Count(Record(CALLS, model_attempts=(1, 2)), starts={"1": 1, "2": 1, "3": 1}, lines=["2"])


def test_every_call_once_is_right() -> None:
    """A note that was refused leaves no line. The table has a line for each tool, and their sum."""
    RIGHT.check_once()

    rows = [line.split() for line in RIGHT.table().splitlines()]
    assert rows[1:] == [
        ["read_file", "1", "1", "1", "1"],
        ["note", "2", "2", "2", "2", "1"],
        ["together", "3", "3", "3", "3", "1"],
    ]
    assert RIGHT.workers == {"worker-of-1": 1, "worker-of-2": 1, "worker-of-3": 1}


def with_calls(*calls: RecordedCall) -> Count:
    return replace(RIGHT, record=Record(calls, model_attempts=(1, 2)))


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (with_calls(*CALLS, CALLS[0]), "asked for under one id: 1"),
        (with_calls(recorded("1", attempts=2), *CALLS[1:]), "tried more or less than once: 1"),
        (replace(RIGHT, starts={"1": 2, "2": 1, "3": 1}), "started more or less than once: 1"),
        (replace(RIGHT, starts={"1": 1, "2": 1}), "started more or less than once: 3"),
        (replace(RIGHT, starts={**RIGHT.starts, "4": 1}), "started by nobody's wish: 4"),
        (with_calls(recorded("1", outcome="unknown"), *CALLS[1:]), "with an unknown outcome: 1"),
        (replace(RIGHT, lines=["2", "2"]), "written twice: 2"),
        (replace(RIGHT, lines=[]), "missing in the ledger: 2"),
        (replace(RIGHT, lines=["2", "3"]), "written by nobody: 3"),
        (replace(RIGHT, record=Record(CALLS, model_attempts=(1, 1))), "the kill interrupted no model call"),
    ],
)
def test_a_count_that_does_not_add_up_fails_the_demo(count: Count, reason: str) -> None:
    """Whichever of the records disagrees, the message names what and which call."""
    with pytest.raises(DemoError, match=reason):
        count.check_once()


def test_starts_are_counted_not_only_noted() -> None:
    """A second start of a call, even under the same attempt, shows."""
    assert evidence(started("1", "note"), started("1", "note"), started("2", "note")).starts == {
        "1": 2,
        "2": 1,
    }


def event(number: int, **attributes: object) -> dict[str, object]:
    return {"eventId": str(number), **attributes}


def scheduled(name: str, argument: object) -> dict[str, object]:
    return {"activityTaskScheduledEventAttributes": {"activityType": {"name": name}, "input": [argument]}}


def begun(scheduled_by: int, attempt: int) -> dict[str, object]:
    fields = {"scheduledEventId": str(scheduled_by), "attempt": attempt, "identity": "worker"}
    return {"activityTaskStartedEventAttributes": fields}


def completed(scheduled_by: int, result: object) -> dict[str, object]:
    fields = {"scheduledEventId": str(scheduled_by), "result": [result]}
    return {"activityTaskCompletedEventAttributes": fields}


NOTED = {"role": "tool", "call_id": "1", "name": "note", "content": "noted", "outcome": "ok"}
EVENTS = [
    event(1),
    event(2, **scheduled("call_model", {})),
    event(3, **begun(2, attempt=2)),
    event(4, **completed(2, {})),
    event(5, **scheduled("run_tool", {"call": {"id": "1", "name": "note", "arguments": "{}"}})),
    event(6, **begun(5, attempt=1)),
    event(7, **completed(5, NOTED)),
]


def history_of(events: list[dict[str, object]]) -> bytes:
    return json.dumps({"history": {"events": events}}).encode()


def test_history_tells_how_often_each_call_was_tried() -> None:
    """Scheduling, start and end of an activity belong together by the id of the first."""
    record = read_record(history_of(EVENTS))

    assert record == Record((RecordedCall("1", "note", "ok", 1, "worker"),), model_attempts=(2,))


async def test_an_encrypted_history_is_read_with_its_key() -> None:
    """Temporal then shows payloads as they are, in place of their JSON."""
    converter = data_converter(None, cipher=keyring("k1"))
    history = history_of(EVENTS[4:]).decode()
    for value in ({"call": {"id": "1", "name": "note", "arguments": "{}"}}, NOTED):
        payloads = MessageToDict(Payloads(payloads=await converter.encode([value])))
        history = history.replace(json.dumps([value]), json.dumps(payloads))

    record = read_record(history.encode(), keyring("k2", "k1"))

    assert "noted" not in history
    assert record.tool_calls == (RecordedCall("1", "note", "ok", 1, "worker"),)


def test_a_call_without_an_outcome_fails_the_demo() -> None:
    """A history whose last call has not ended is no proof."""
    with pytest.raises(DemoError, match="1 calls without an outcome"):
        read_record(history_of(EVENTS[:-1]))


def test_a_task_that_failed_fails_the_demo_with_its_own_words() -> None:
    """Only a completed task with an answer counts; a draft that was withdrawn is none."""
    answered = (TaskAccepted("t"), TextArrived("yes", append=True), StatusArrived("completed", ""))
    evidence(*answered).check_completed()
    for arrivals in (
        (StatusArrived("failed", "the key was refused"),),
        (
            TextArrived("draft", append=True),
            TextArrived("", append=False),
            StatusArrived("completed", "the key was refused"),
        ),
    ):
        with pytest.raises(DemoError, match="the key was refused"):
            evidence(*arrivals).check_completed()


def test_only_the_lines_of_the_task_are_counted(tmp_path: Path) -> None:
    """A ledger may hold notes of other tasks; one that does not exist is empty."""
    ledger = tmp_path / "ledger.jsonl"
    assert written_by("a", ledger) == []
    lines = [
        '{"task_id": "a", "call_id": "1"}',
        '{"task_id": "b", "call_id": "2"}',
        '{"task_id": "a", "call_id": "1"}',
    ]
    ledger.write_text("\n".join(lines))
    assert written_by("a", ledger) == ["1", "1"]
