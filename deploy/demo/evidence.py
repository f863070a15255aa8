"""What the events of a task and the ledger prove, and when to kill its worker."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from everloop.deploy.demo.conversation import Arrival, DemoError, StatusArrived, TaskAccepted, TextArrived
from everloop.workflows.contract.events import (
    IterationStarted,
    Thought,
    ToolCalled,
    ToolCompleted,
    ToolStarted,
)

RESULTS_BEFORE = 3
"""Tool results that a task has when its worker is killed, so that both workers have run some."""


@dataclass
class Evidence:
    """Folds what arrives from one task; `starts` counts by call id how often a tool began to run."""

    task_id: str = ""
    state: str = ""
    message: str = ""
    answer: str = ""
    starts: Counter[str] = field(default_factory=Counter[str])

    def take(self, arrival: Arrival) -> None:
        """Note what this arrival tells."""
        match arrival:
            case TaskAccepted():
                self.task_id = arrival.task_id
            case StatusArrived():
                self.state, self.message = arrival.state, arrival.message
            case TextArrived():
                self.answer = self.answer + arrival.text if arrival.append else arrival.text
            case ToolStarted():
                self.starts[arrival.call_id] += 1
            case _:
                pass

    def check_completed(self) -> None:
        """Raise a DemoError unless the task completed with an answer."""
        if self.state != "completed" or not self.answer:
            raise DemoError(f"the task ended as {self.state or 'nothing'}: {self.message or 'no answer'}")


class Midway:
    """Finds the moment in which a kill meets the model at work, and no tool.

    That is when, after `RESULTS_BEFORE` tool results, text or a thought arrives while no call is open. A
    model that calls tools without a word is met at the beginning of its next call instead.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self._is_silent = False

    def is_reached_by(self, arrival: Arrival) -> bool:
        """Whether this arrival is the moment; every arrival has to be shown, in order."""
        match arrival:
            case ToolCalled() | ToolStarted():
                self._is_silent = self._is_silent or self._is_between_tools
                self._open.add(arrival.call_id)
            case ToolCompleted():
                self._open.discard(arrival.call_id)
                self._ended.add(arrival.call_id)
            case Thought(text=text) | TextArrived(text=text):
                return bool(text) and self._is_between_tools
            case IterationStarted():
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
