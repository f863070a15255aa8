"""The arguments and results of task views and event streams."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from everloop.workflows.contract.events import TaskEvent
from everloop.workflows.contract.fold import TaskIdentity
from everloop.workflows.contract.payloads import Wire
from everloop.workflows.contract.tasks import TaskState, TaskView

MAX_EVENTS = 10_000
"""How many events of a task its log keeps, about."""

START = "0-0"
"""The position before the first event of every stream."""

MAX_PAGE_BYTES = 8_000_000
"""Of the views on one page of a list, as they are stored."""


@dataclass(frozen=True)
class Snapshot:
    """A view and the position of the last event folded into it, taken in one step.

    `size` is that of all that was asked for, in bytes, as it is stored. `left_out`: it was too much, so that
    the view has neither history nor artifacts; these are the ids of the messages in the history.
    `is_incomplete`: Redis has lost events from before its status, or content that the status requires
    (`Shown`); its workflow and the stores have them.
    """

    view: TaskView
    position: str
    size: int = field(default=0, compare=False)
    left_out: frozenset[str] | None = None
    is_incomplete: bool = field(default=False, compare=False)

    @property
    def is_complete(self) -> bool:
        """Whether the view has all that was asked for."""
        return self.left_out is None

    @property
    def message_ids(self) -> frozenset[str]:
        """The ids of the messages in the history."""
        if self.left_out is not None:
            return self.left_out
        return frozenset(message.message_id for message in self.view.history)


@dataclass(frozen=True)
class OpenTask:
    """What the view of a task says that has not ended; `at` is when, in seconds since the epoch.

    `version` is the number of that status.
    """

    task_id: str
    state: TaskState
    run_id: str
    version: int
    at: float


class ViewStatus(NamedTuple):
    """What a view says last: a state, the run that said so, and the number of that status."""

    state: TaskState
    run_id: str
    version: int


class ListedStatus(Wire):
    """The last status of a task, as lists show it."""

    version: int
    state: TaskState
    at: int
    """Microseconds since the epoch."""
    scopes: tuple[str, ...]


LISTED_FIELDS = ("task", "changed", "status", "status_run", "title", "opened", "used")
"""Of the head of a log, what lists say of its task."""


@dataclass(frozen=True)
class Listing:
    """What the lists are to say of a client's task.

    `revision` is the position of its status in its stream, `at` the time of the status in microseconds.
    `scopes`: whose holders it asks in its owner's place. `title` is what its context is called if it is the
    first one there, as it is kept; `used`: what it has used, in words. `opened`: the
    event by which it opened again.
    """

    task: TaskIdentity
    revision: str
    at: int
    state: TaskState
    scopes: tuple[str, ...]
    title: str = ""
    used: str = ""
    opened: str = ""
    run_id: str = ""
    version: int = 0

    @property
    def open_entry(self) -> str:
        """What stands for it among all open tasks: another word each time that it opens.

        So an end that comes late takes out what it has ended, and nothing else.
        """
        return f"{self.task.task_id} {self.opened}".rstrip()


def listing_of(fields: Sequence[str | None]) -> Listing | None:
    """Return what lists are to say by these `LISTED_FIELDS`; None where nobody knows whose task it is."""
    task, revision, status, run_id, title, opened, used = fields
    if not (task and revision and status):
        return None
    identity, said = TaskIdentity.model_validate_json(task), ListedStatus.model_validate_json(status)
    return Listing(
        identity,
        revision,
        said.at,
        said.state,
        said.scopes,
        title or "",
        used or "",
        opened or "",
        run_id or "",
        said.version,
    )


@dataclass(frozen=True)
class Published:
    """What became of events: the states that the task took, and what is to be done about it after the step.

    `listing` is what lists are to say now; None: nothing else. `push` are the ids of its push configs, where
    somebody is to be notified; `is_urgent`: if nobody can be, the events are to be published again.
    `needs_snapshot`: so much was appended since the last one, or the task has ended.
    """

    states: tuple[TaskState, ...] = ()
    listing: Listing | None = None
    push: tuple[str, ...] = ()
    is_urgent: bool = False
    needs_snapshot: bool = False


class LoggedArtifact(NamedTuple):
    """What the head of a log says of an artifact: its last chunk, and the version of its content.

    `state`: "open", "complete" or "failed". `version`: see `ArtifactChunk`.
    """

    position: int
    attempt: int
    state: str
    version: str


class StreamedEvent(NamedTuple):
    """An event and where it stands. Positions of one stream grow; compare them with `position_order`.

    `follows_loss`: Redis has lost what came before this status.
    """

    task_id: str
    position: str
    event: TaskEvent
    follows_loss: bool = False


@dataclass(frozen=True)
class TaskQuery:
    """Which tasks to list: those of `owner` with one agent, newest status first.

    `updated_since` is in microseconds since the epoch, inclusive. `page_size` is 1 to 100. `page_token` is
    opaque, from the page before; empty for the first page. Views come with their newest `with_history`
    messages (None: all), and without artifacts unless these are wanted.
    """

    owner: str
    agent_id: str
    context_id: str | None = None
    state: TaskState | None = None
    updated_since: int | None = None
    page_size: int = 50
    page_token: str = ""
    with_history: int | None = None
    with_artifacts: bool = True


@dataclass(frozen=True)
class TaskPage:
    """One page of tasks. `total` counts all tasks that match; `next_page_token` is empty at the end.

    `left_out`: task id → bytes that were wanted of it, where they are more than a page may have; its view has
    neither history nor artifacts.
    """

    views: tuple[TaskView, ...]
    total: int
    next_page_token: str
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class WaitingQuery:
    """Which tasks to list, of whatever owner: those that wait for somebody with one of these scopes.

    `page_size` and `page_token` are as for `TaskQuery`, the oldest first.
    """

    scopes: tuple[str, ...]
    page_size: int = 50
    page_token: str = ""


class WaitingTask(NamedTuple):
    """A task without history and artifacts, and the scope that it waits for; it may wait for several."""

    view: TaskView
    scope: str


@dataclass(frozen=True)
class WaitingPage:
    """One page of tasks that wait; `next_page_token` is empty at the end."""

    tasks: tuple[WaitingTask, ...]
    next_page_token: str


class InvalidPageTokenError(ValueError):
    """The page token is not one that the list returned. Leave it out to start at the first page."""


def position_order(position: str) -> tuple[int, int]:
    """Return a sort key for stream positions (`milliseconds-sequence`)."""
    milliseconds, _, sequence = position.partition("-")
    return int(milliseconds), int(sequence or 0)


def place_among_open(revision: str) -> int:
    """Return the place of a task among all open ones. It grows with each status; their times may not."""
    milliseconds, sequence = position_order(revision)
    return milliseconds * 1000 + min(sequence, 999)


def is_position(text: str) -> bool:
    """Whether a client's text has the form of a position: two unsigned 64-bit numbers."""
    milliseconds, separator, sequence = text.partition("-")
    return separator == "-" and _is_unsigned_64_bit(milliseconds) and _is_unsigned_64_bit(sequence)


def _is_unsigned_64_bit(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(1 << 64)) and int(text) < 1 << 64


# Where a page of a list ends, as clients hand it back.

_SCORES = 2**53
"""Sorted sets hold whole numbers exactly up to here."""


class IndexEntry(NamedTuple):
    """A task, or a context, in a list. They run from the greatest entry down; `score` is in microseconds."""

    score: int
    name: str


def encode_page_token(last: IndexEntry) -> str:
    """Return the token of the page that begins after this entry."""
    return base64.urlsafe_b64encode(f"{last.score}:{last.name}".encode()).decode()


def decode_page_token(token: str) -> IndexEntry | None:
    """Return the entry after which the page begins, None for the first page.

    Raises:
        InvalidPageTokenError: `encode_page_token` did not make this token.
    """
    if not token:
        return None
    try:
        score, _, name = base64.urlsafe_b64decode(token).decode().partition(":")
        entry = IndexEntry(int(score), name)
    except (ValueError, binascii.Error):
        entry = None
    if entry is None or abs(entry.score) >= _SCORES or encode_page_token(entry) != token:
        raise InvalidPageTokenError(
            "the page token is not one that a list returned; leave it out to start at the first page"
        )
    return entry
