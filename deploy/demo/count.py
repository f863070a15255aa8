"""The count: what a task asked for, and what was done, by records that know nothing of each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everloop.deploy.demo.conversation import DemoError
from everloop.deploy.demo.history import Record, RecordedCall

NOTE = "note"
HEADINGS = ("tool", "asked for", "different ids", "attempts", "starts", "lines")
LEGEND = """\
   asked for, different ids, attempts: from Temporal's history
   starts: from the events that workers published; lines: from the ledger, where each note adds one"""


@dataclass(frozen=True)
class Count:
    """What three records say of a task's tool calls.

    `starts` is how often workers said that they begin each call, by call id; `lines` holds the call id of
    every line of the ledger.
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
        """A note that was confirmed left one line, one that was refused left none."""
        notes = {
            call.call_id for call in self.record.tool_calls if call.name == NOTE and call.outcome == "ok"
        }
        return {
            "written twice": _repeated(self.lines),
            "missing in the ledger": sorted(notes - set(self.lines)),
            "written by nobody": sorted(set(self.lines) - notes),
        }

    def table(self) -> str:
        """Return a line for each tool, and their sum."""
        calls = self.record.tool_calls
        names = dict.fromkeys(call.name for call in calls)
        rows = [self._row(name, [call for call in calls if call.name == name]) for name in names]
        return _aligned([HEADINGS, *rows, self._row("together", calls)])

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
        """How many of the tool calls each worker process ended."""
        return Counter(call.worker for call in self.record.tool_calls)


def _repeated(call_ids: Sequence[str]) -> list[str]:
    return [call_id for call_id, count in Counter(call_ids).items() if count > 1]


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
    return "   ".join(("", f"{row[0]:<{widths[0]}}", *numbers)).rstrip()
