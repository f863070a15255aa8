"""The demo proves its claims: it fails if a run or an effect is missing, doubled, or unknown."""

from dataclasses import replace

import pytest

from everloop.cli.demo.evidence import Count
from everloop.cli.demo.recorded_calls import DemoError, Record, RecordedCall


def recorded(call_id: str, name: str = "read_file", outcome: str = "ok", attempts: int = 1) -> RecordedCall:
    return RecordedCall(call_id, name, outcome, attempts, worker=f"worker-of-{call_id}")


CALLS = (recorded("1"), recorded("2", "note"), recorded("3", "note", "error"))
RIGHT = Count(Record(CALLS, model_attempts=(1, 2)), starts={"1": 1, "2": 1, "3": 1}, lines=["2"])


def test_every_call_once_is_right() -> None:
    """A refused note has no line. The table has a line for each tool, and their sum."""
    RIGHT.check_once()

    assert RIGHT.rows == [
        ("read_file", "1", "1", "1", "1", ""),
        ("note", "2", "2", "2", "2", "1"),
        ("together", "3", "3", "3", "3", "1"),
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
    """Whichever of the records disagrees, the error names the difference and the call."""
    with pytest.raises(DemoError, match=reason):
        count.check_once()
