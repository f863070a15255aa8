"""Leases: which attempt at a call may work on it now.

Apart from the records that hold them (`stores.tool_records`): views, on which these stand, take them too.
"""

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
