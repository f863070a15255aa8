"""What the events of a task and the ledger prove about its tool calls."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from agents.demo import agent
from deploy.demo.conversation import Arrival, StatusArrived, TaskAccepted, TextArrived
from deploy.demo.errors import DemoError
from workflows.contract.events import ToolCalled, ToolCompleted, ToolStarted

NOTE = "note"


@dataclass
class Call:
    """One tool call of the task, as its events told."""

    name: str
    attempts: set[int] = field(default_factory=set[int])
    outcome: str = ""

    @property
    def is_running(self) -> bool:
        return bool(self.attempts) and not self.outcome


@dataclass
class Evidence:
    """Folds what arrives from one task."""

    task_id: str = ""
    state: str = ""
    remark: str = ""
    answer: str = ""
    calls: dict[str, Call] = field(default_factory=dict[str, Call])

    def take(self, arrival: Arrival) -> None:
        """Note what this arrival tells."""
        match arrival:
            case TaskAccepted():
                self.task_id = arrival.task_id
            case StatusArrived():
                self.state, self.remark = arrival.state, arrival.message
            case TextArrived():
                self.answer = self.answer + arrival.text if arrival.append else arrival.text
            case ToolCalled() | ToolStarted() | ToolCompleted():
                self._take_tool_event(arrival)
            case _:
                pass

    def _take_tool_event(self, event: ToolCalled | ToolStarted | ToolCompleted) -> None:
        call = self.calls.setdefault(event.call_id, Call(event.name))
        if isinstance(event, ToolStarted):
            call.attempts.add(event.attempt)
        elif isinstance(event, ToolCompleted):
            call.outcome = event.outcome

    @property
    def running(self) -> str:
        """The tools that run now."""
        return _counted(call.name for call in self.calls.values() if call.is_running)

    @property
    def is_midway(self) -> bool:
        """Whether a tool has ended, and all that are left run now and may be repeated."""
        left = [call for call in self.calls.values() if not call.outcome]
        if not left or len(left) == len(self.calls):
            return False
        return all(call.is_running and agent.tools[call.name].idempotent for call in left)

    @property
    def names(self) -> str:
        """The tools and how often each was called."""
        return _counted(call.name for call in self.calls.values())

    @property
    def repeated(self) -> str:
        """The tools that ran in a second attempt."""
        return _counted(call.name for call in self.calls.values() if any(n > 1 for n in call.attempts))

    def notes(self, outcome: str) -> set[str]:
        """Return the ids of the calls of `note` that ended so."""
        return {key for key, call in self.calls.items() if call.name == NOTE and call.outcome == outcome}

    def check_completed(self) -> None:
        """Raise a DemoError unless the task completed with an answer."""
        if self.state != "completed" or not self.answer:
            raise DemoError(f"the task ended as {self.state or 'nothing'}: {self.remark or 'no answer'}")

    def check_calls(self, recorded: int) -> None:
        """Raise a DemoError unless the history holds as many calls as the stream told of."""
        if recorded != len(self.calls):
            raise DemoError(f"the stream told of {len(self.calls)} tool calls, the history holds {recorded}")

    def check_notes(self, written: Sequence[str]) -> None:
        """Raise a DemoError unless each call of `note` left one line, and nothing else did.

        `written` holds the call id of every line. A call whose outcome is unknown may have left one or none.
        """
        twice = [call_id for call_id, count in Counter(written).items() if count > 1]
        missing = self.notes("ok") - set(written)
        strange = set(written) - self.notes("ok") - self.notes("unknown")
        if twice or missing or strange:
            raise DemoError(
                f"the ledger is wrong: written twice {twice}, missing {sorted(missing)}, "
                f"by nobody {sorted(strange)}"
            )


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).items()) or "none"


class _Line(BaseModel):
    task_id: str
    call_id: str


def written_by(task_id: str, ledger: Path) -> list[str]:
    """Return the call id of every line that a task left in the ledger."""
    if not ledger.exists():
        return []
    lines = [_Line.model_validate_json(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    return [line.call_id for line in lines if line.task_id == task_id]
