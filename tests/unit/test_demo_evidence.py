"""The demo proves what it says: it fails when an effect is missing, doubled, or of nobody."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.demo.conversation import Arrival, StatusArrived, TaskAccepted, TextArrived
from deploy.demo.errors import DemoError
from deploy.demo.evidence import Evidence, written_by
from workflows.contract.events import ToolCalled, ToolCompleted, ToolStarted


def called(call_id: str, name: str) -> Arrival:
    return ToolCalled(iteration=1, call_id=call_id, name=name, arguments="{}")


def started(call_id: str, name: str, attempt: int = 1) -> Arrival:
    return ToolStarted(call_id=call_id, name=name, attempt=attempt)


def ended(call_id: str, name: str) -> Arrival:
    return ToolCompleted(call_id=call_id, name=name, outcome="ok", excerpt="")


def lost(call_id: str, name: str) -> Arrival:
    return ToolCompleted(call_id=call_id, name=name, outcome="unknown", excerpt="")


def evidence(*arrivals: Arrival) -> Evidence:
    folded = Evidence()
    for arrival in arrivals:
        folded.take(arrival)
    return folded


LISTED = (called("1", "list_files"), started("1", "list_files"), ended("1", "list_files"))


@pytest.mark.parametrize(
    ("arrivals", "is_midway"),
    [
        ((), False),
        ((called("1", "list_files"), started("1", "list_files")), False),
        (LISTED, False),
        ((*LISTED, called("2", "read_file")), False),
        ((*LISTED, called("2", "read_file"), started("2", "read_file")), True),
        ((*LISTED, called("2", "read_file"), started("2", "read_file"), called("3", "read_file")), False),
        ((*LISTED, called("2", "note"), started("2", "note")), False),
        ((*LISTED, started("2", "note"), started("3", "read_file")), False),
    ],
)
def test_the_worker_is_killed_only_while_repeatable_tools_run(
    arrivals: Sequence[Arrival], *, is_midway: bool
) -> None:
    """One call has ended, and every other one runs and may be repeated; never while a note is written."""
    assert evidence(*arrivals).is_midway is is_midway


NOTES = [ended("1", "note"), ended("2", "note"), lost("3", "note")]


@pytest.mark.parametrize("written", [["1", "2"], ["2", "1", "3"]])
def test_each_note_once_is_right(written: Sequence[str]) -> None:
    """A call whose outcome nobody knows may have left its line or not."""
    evidence(*NOTES).check_notes(written)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (["1", "2", "2"], r"written twice \['2'\]"),
        (["1"], r"missing \['2'\]"),
        (["1", "2", "3", "3"], r"written twice \['3'\]"),
        (["1", "2", "4"], r"by nobody \['4'\]"),
    ],
)
def test_a_wrong_ledger_fails_the_demo(written: Sequence[str], reason: str) -> None:
    """A line too many, too few, or of a call that the stream never showed is an error."""
    with pytest.raises(DemoError, match=reason):
        evidence(*NOTES).check_notes(written)


def test_a_call_that_only_one_side_knows_fails_the_demo() -> None:
    """History and stream tell of the same calls."""
    evidence(*LISTED).check_calls(1)
    with pytest.raises(DemoError, match="the stream told of 1 tool calls, the history holds 2"):
        evidence(*LISTED).check_calls(2)


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
