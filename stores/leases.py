"""Leases: which attempt at a call may work on it now."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto


class Claim(Enum):
    """Answer to a claim of a call."""

    FIRST = auto()
    """Nobody has started this call, or who did gave it back; it is ours."""
    LOST = auto()
    """An earlier attempt started it and left no outcome, and its lease has ended; it is ours."""
    HELD = auto()
    """Another attempt works on it: its lease lives."""
    FINISHED = auto()
    """It has an outcome."""
    OVERTAKEN = auto()
    """A later attempt has claimed it before."""


@dataclass(frozen=True)
class Lease:
    """What one attempt claims: `call_id` names the call within its task, `token` the attempt.

    `order` sorts after that of every earlier attempt; attempts of the same order come as they come.
    """

    task_id: str
    call_id: str
    token: str
    order: str = ""


class NotOursError(Exception):
    """Another attempt has claimed the call since: nothing was written.

    What writes for a call takes the lease of the attempt, and looks for a later one in the same step.
    """


class Leases(ABC):
    """(task, call) → the attempt that holds it, and until when, by the clock of the store.

    A lease that has ended still says whose the call is, until another attempt claims it: what was only slow
    goes on, and what was overtaken is refused. Every call may be repeated when its answer was lost.
    """

    @abstractmethod
    async def claim(self, lease: Lease, seconds: float) -> Claim:
        """Take a call that nobody works on, for so many seconds."""

    @abstractmethod
    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold the call for so many seconds from now (0: end the lease); return whether it is ours still.

        A call of which the store knows nothing, because it was emptied, becomes ours again.
        """

    @abstractmethod
    async def release(self, lease: Lease, seconds: float = 0) -> None:
        """Give a call back that is ours and has ended without an outcome: the next claim is the first.

        For so many seconds it stays held all the same.
        """

    @abstractmethod
    async def revoke(self, lease: Lease) -> None:
        """Take a call without an outcome from whoever works on it, who is to stop; nobody holds it then."""
