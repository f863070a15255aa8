"""Evidence that each tool ran once (events, and a ledger that tools write), and the moment of the kill."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from everloop.cli.demo.recorded_calls import DemoError, Record, RecordedCall
from everloop.client import (
    Done,
    Event,
    OtherEvent,
    Result,
    TaskState,
    TextDelta,
    Thought,
    ToolCallEnded,
    ToolCallStarted,
)

RESULTS_BEFORE = 3
"""Tool results that a task has when its worker is killed, so that both workers have run some."""


def completed(event: Event) -> Result:
    """Return the result of the last event of a task; raise a DemoError unless it completed with an answer."""
    assert isinstance(event, Done)  # noqa: S101 -- no stream ends with another one
    result = event.result
    if result.state is not TaskState.COMPLETED or not result.text:
        raise DemoError(f"the task ended as {result.state}: {result.error or 'no answer'}")
    return result


class Midway:
    """Detector of a moment in which the model works, and no tool.

    That is when, after `RESULTS_BEFORE` tool results, text or a thought arrives while no call is open.
    For a model that calls tools without text it is the start of its next call.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self._is_silent = False

    def is_reached_by(self, event: Event) -> bool:
        """Return whether this event is the moment; every event has to be passed, in order."""
        match event:
            case ToolCallStarted():
                self._is_silent = self._is_silent or self._is_between_tools
                self._open.add(event.call_id)
            case ToolCallEnded():
                self._open.discard(event.call_id)
                self._ended.add(event.call_id)
            case Thought(text=text) | TextDelta(text=text):
                return bool(text) and self._is_between_tools
            case OtherEvent(kind="iteration"):
                return self._is_silent and self._is_between_tools
            case _:
                pass
        return False

    @property
    def _is_between_tools(self) -> bool:
        return len(self._ended) >= RESULTS_BEFORE and not self._open


class _Line(BaseModel):
    task_id: str
    call_id: str


def written_by(task_id: str, ledger: Path) -> list[str]:
    """Return the call id of every line that a task left in the ledger."""
    if not ledger.exists():
        return []
    lines = [_Line.model_validate_json(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    return [line.call_id for line in lines if line.task_id == task_id]


# The count: requested and executed calls, by independent records.

NOTE = "note"
HEADINGS = ("tool", "asked for", "different ids", "attempts", "starts", "lines")
LEGEND = """\
asked for, different ids, attempts: from Temporal's history
starts: from the events that workers published; lines: from the ledger, where each note adds one"""


@dataclass(frozen=True)
class Count:
    """Three records of the tool calls of a task.

    `starts` counts the starts that workers report, by call id; `lines` holds the call id of every line
    of the ledger.
    """

    record: Record
    starts: Mapping[str, int]
    lines: Sequence[str]

    def check_once(self) -> None:
        """Raise a DemoError unless every tool ran exactly once, though a model call was interrupted."""
        ids = [call.call_id for call in self.record.tool_calls]
        wrong = {
            "asked for under one id": _repeated(ids),
            "tried more or less than once": [c.call_id for c in self.record.tool_calls if c.attempts != 1],
            "started more or less than once": [call_id for call_id in ids if self.starts.get(call_id) != 1],
            "started by nobody's wish": [call_id for call_id in self.starts if call_id not in ids],
            "with an unknown outcome": [c.call_id for c in self.record.tool_calls if c.outcome == "unknown"],
            **self._wrong_lines(),
        }
        if found := [f"{what}: {', '.join(calls)}" for what, calls in wrong.items() if calls]:
            raise DemoError(f"not every tool call ran exactly once: {'; '.join(found)}")
        if not any(attempts > 1 for attempts in self.record.model_attempts):
            raise DemoError("the kill interrupted no model call, so it proves nothing; run it again")

    def _wrong_lines(self) -> dict[str, list[str]]:
        """Return the unexpected lines: a confirmed note leaves one, a rejected note none."""
        notes = {
            call.call_id for call in self.record.tool_calls if call.name == NOTE and call.outcome == "ok"
        }
        return {
            "written twice": _repeated(self.lines),
            "missing in the ledger": sorted(notes - set(self.lines)),
            "written by nobody": sorted(set(self.lines) - notes),
        }

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of a table: one for each tool, and their sum."""
        calls = self.record.tool_calls
        names = dict.fromkeys(call.name for call in calls)
        rows = [self._row(name, [call for call in calls if call.name == name]) for name in names]
        return [*rows, self._row("together", calls)]

    def _row(self, title: str, calls: Sequence[RecordedCall]) -> tuple[str, ...]:
        ids = {call.call_id for call in calls}
        lines = sum(line in ids for line in self.lines)
        writes = any(call.name == NOTE for call in calls)
        return (
            title,
            str(len(calls)),
            str(len(ids)),
            str(sum(call.attempts for call in calls)),
            str(sum(self.starts.get(call_id, 0) for call_id in ids)),
            str(lines) if writes else "",
        )

    @property
    def workers(self) -> Counter[str]:
        """Number of tool calls that each worker process ended."""
        return Counter(call.worker for call in self.record.tool_calls)


def _repeated(call_ids: Sequence[str]) -> list[str]:
    return [call_id for call_id, count in Counter(call_ids).items() if count > 1]
