"""What is known of tool calls: the record that keeps an effect from happening twice."""

from abc import ABC, abstractmethod
from enum import Enum, auto

from pydantic import JsonValue, TypeAdapter

from workflows.contract.calls import ToolReply
from workflows.contract.wire import HIDE_VALUES

OUTCOME_ADAPTER: TypeAdapter[ToolReply] = TypeAdapter(ToolReply, config=HIDE_VALUES)


class Claim(Enum):
    """Answer to a claim of a call that has no outcome yet."""

    FIRST = auto()
    """Nobody started this call before, or it was released; it is ours."""
    STARTED_BEFORE = auto()
    """An earlier attempt started it and left no outcome."""


class ToolRecords(ABC):
    """(task, call id) → started or finished. Survives the run, so that a reset task reuses outcomes.

    A call that asks people comes in phases, each with a record under an id of its own; the outcome of a phase
    is a result or a question. Beside that, a call keeps one JSON value of its tool's own.
    """

    @abstractmethod
    async def claim(self, task_id: str, call_id: str) -> Claim | ToolReply:
        """Record that the call starts now; return its outcome instead if it already finished."""

    @abstractmethod
    async def finish(self, task_id: str, call_id: str, outcome: ToolReply) -> ToolReply:
        """Record the outcome; the first one recorded stands and is returned."""

    @abstractmethod
    async def release(self, task_id: str, call_id: str) -> None:
        """Give a call back that has ended without an outcome: the next claim is the first. Outcomes stand."""

    @abstractmethod
    async def keep(self, task_id: str, call_id: str, value: JsonValue) -> None:
        """Keep a value of the tool's own, in place of the last one; it goes when the record goes."""

    @abstractmethod
    async def kept(self, task_id: str, call_id: str) -> JsonValue:
        """Return the value that was kept, None if there is none."""
