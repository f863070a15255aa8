"""Leases: which attempt at a call may work on it now.

The records of calls hold them (`stores.tool_records`); whatever is written for a call takes them too.
"""

from dataclasses import dataclass
from enum import Enum, auto

from temporalio.exceptions import ApplicationError

from everloop.stores.keys import tool_record_key, view_key
from everloop.workflows.contract import failures


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


class OvertakenError(ApplicationError):
    """Another attempt has taken the call over, or nobody wants it any more: this one has written nothing.

    What writes for a call takes the lease of the attempt, and looks for a later one in the same step. The
    error ends the attempt.
    """

    def __init__(self) -> None:
        super().__init__("another attempt has taken this call over", type=failures.OVERTAKEN)
        self.__suppress_context__ = True  # Temporal would keep it, and it may hold a secret


IS_LATE = """
local function is_late(record, order)
  local newest = order ~= '' and redis.call('HGET', record, 'order')
  return newest and newest > order
end
"""
"""A function for scripts: whether a later attempt has claimed the call; it takes what `late_key` and
`order_of` return. Where the record of a call was lost, nobody is late."""


def late_key(task_id: str, lease: Lease | None) -> str:
    """Return the key that scripts need for `IS_LATE`; without a lease any key of the task."""
    return tool_record_key(lease.task_id, lease.call_id) if lease else view_key(task_id)


def order_of(lease: Lease | None) -> str:
    """Return the order that scripts need for `IS_LATE`; empty: nobody is late."""
    return lease.order if lease else ""
