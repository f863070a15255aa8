"""The tasks of one owner, as rows of one sorted set. All have the same score, so they are sorted by bytes.

The rows of a list are adjacent; those of a task are replaced in one step. Rows consist of words without
spaces, times have 16 digits:

    t <task id> <revision> <time> <state> <agent> <context> <expiry> <scope> ...   the task as it is listed
    l <agent> <context or *> <state or *> <time> <task id>   four: its places in lists, by time of its status
    o <task id>              while it is open
    e <expiry> <task id>     after its end: when its view expires, in milliseconds

A revision is the position of the last status in the task's stream.
"""

from itertools import product
from typing import NamedTuple

from everloop.stores.log.log_types import position_order
from everloop.workflows.contract.tasks import TaskState

ANY = "*"
"""The word for any name in a row; no name is encoded as this word."""

_PLACES = 10**16
"""Upper limit of the times in rows: they have 16 digits."""


class Row(NamedTuple):
    """The listed facts of a task, as the words of its row."""

    task_id: str
    revision: str
    at: str
    state: str
    agent: str
    context: str
    expiry: str
    """Time in milliseconds; `-` while the task is open."""
    scopes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Row":
        """Return the words of a row."""
        _, task_id, revision, at, state, agent, context, expiry, *scopes = text.split()
        return cls(task_id, revision, at, state, agent, context, expiry, tuple(scopes))

    @property
    def text(self) -> str:
        """The row itself."""
        return " ".join(("t", *self[:-1], *self.scopes))

    def precedes(self, revision: str) -> bool:
        """Return True if a revision is at least as new as this one."""
        return position_order(self.revision) <= position_order(revision)


def rows_of(row: Row) -> list[str]:
    """Return all rows of a task."""
    lists = product((ANY, row.context), (ANY, row.state))
    places = [f"l {row.agent} {context} {state} {row.at} {row.task_id}" for context, state in lists]
    has_ended = TaskState(row.state).is_terminal
    return [row.text, *places, f"e {row.expiry} {row.task_id}" if has_ended else f"o {row.task_id}"]


def time_word(at: int) -> str:
    """Return a time as a word of a row."""
    return f"{min(max(at, 0), _PLACES - 1):016d}"
