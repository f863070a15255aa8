"""What is known of tool calls: the record that keeps an effect from happening twice."""

from abc import ABC, abstractmethod
from enum import Enum, auto

from workflows.contract.messages import ToolMessage


class Claim(Enum):
    """Answer to a claim of a call that has no outcome yet."""

    FIRST = auto()
    """Nobody started this call before; it is ours."""
    STARTED_BEFORE = auto()
    """An earlier attempt started it and left no outcome."""


class ToolRecords(ABC):
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes."""

    @abstractmethod
    async def claim(self, task_id: str, call_id: str) -> Claim | ToolMessage:
        """Record that the call starts now; return its outcome instead if it already finished."""

    @abstractmethod
    async def finish(self, task_id: str, call_id: str, outcome: ToolMessage) -> ToolMessage:
        """Record the outcome; the first one recorded stands and is returned."""
