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
"""Approximate maximum of events in the log of a task."""

START = "0-0"
"""The position before the first event of every stream."""

MAX_PAGE_BYTES = 8_000_000
"""Maximum stored size of the views on one page of a list."""


@dataclass(frozen=True)
class Snapshot:
    """A view and the position of the last event folded into it, read in one step.

    `size` is the stored size of the requested parts in bytes. `left_out` is set if they exceed the limit: the
    view has neither history nor artifacts, and these are the ids of the messages in the history.
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
        """True if the view has all requested parts."""
        return self.left_out is None

    @property
    def message_ids(self) -> frozenset[str]:
        """The ids of the messages in the history."""
        if self.left_out is not None:
            return self.left_out
        return frozenset(message.message_id for message in self.view.history)


@dataclass(frozen=True)
class OpenTask:
    """The last status of an open task: `at` is its time in seconds since the epoch, `version` its number."""

    task_id: str
    state: TaskState
    run_id: str
    version: int
    at: float


class ViewStatus(NamedTuple):
    """The last status of a view: its state, the run that published it, and its number."""

    state: TaskState
    run_id: str
    version: int


class ListedStatus(Wire):
    """The last status of a task, as stored for lists."""

    version: int
    state: TaskState
    at: int
    """Microseconds since the epoch."""
    scopes: tuple[str, ...]


LISTED_FIELDS = ("task", "changed", "status", "status_run", "title", "opened", "used")
"""Fields of the head of a log from which its task is listed."""


@dataclass(frozen=True)
class Listing:
    """The entry of a client's task in the lists.

    `revision` is the position of its status in its stream, `at` the time of the status in microseconds.
    `scopes`: scopes whose holders are asked instead of the owner. `title`: the stored title for its context,
    if the task is the first one there. `used`: its usage, in words. `opened`: the event that opened it again.
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
        """Its entry in the list of all open tasks: a new one each time that the task opens.

        So a late end removes the entry that it has ended, and no other.
        """
        return f"{self.task.task_id} {self.opened}".rstrip()


def listing_of(fields: Sequence[str | None]) -> Listing | None:
    """Return the listing made of these `LISTED_FIELDS`; None if the owner of the task is unknown."""
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
    """The result of publishing events: the new states of the task, and the work to be done after the step.

    `listing` is the new entry in the lists; None: unchanged. `push`: ids of the push configs to notify.
    `is_urgent`: the events are to be published again if the notification fails. `needs_snapshot`: the log
    after the last snapshot is long, or the task has ended.
    """

    states: tuple[TaskState, ...] = ()
    listing: Listing | None = None
    push: tuple[str, ...] = ()
    is_urgent: bool = False
    needs_snapshot: bool = False


class LoggedArtifact(NamedTuple):
    """The state of an artifact in the head of a log: its last chunk, and the version of its content.

    `state`: "open", "complete" or "failed". `version`: see `ArtifactChunk`.
    """

    position: int
    attempt: int
    state: str
    version: str


class StreamedEvent(NamedTuple):
    """An event and its position. Positions of one stream increase; compare them with `position_order`.

    `follows_loss`: Redis has lost events before this status.
    """

    task_id: str
    position: str
    event: TaskEvent
    follows_loss: bool = False


@dataclass(frozen=True)
class TaskQuery:
    """A query for tasks of `owner` with one agent, newest status first.

    `updated_since` is in microseconds since the epoch, inclusive. `page_size` is 1 to 100. `page_token` is
    opaque, from the page before; empty for the first page. Views have their newest `with_history` messages
    (None: all), and artifacts only if `with_artifacts` is set.
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

    `left_out`: task id → size of its requested parts in bytes, for tasks that exceed the size of a page;
    their views have neither history nor artifacts.
    """

    views: tuple[TaskView, ...]
    total: int
    next_page_token: str
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class WaitingQuery:
    """A query for tasks of any owner that wait for a holder of one of these scopes, the oldest first.

    `page_size` and `page_token` are as for `TaskQuery`.
    """

    scopes: tuple[str, ...]
    page_size: int = 50
    page_token: str = ""


class WaitingTask(NamedTuple):
    """A task without history and artifacts, and one of the scopes that it waits for."""

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
    """Return the place of a task among all open ones. It increases with each status; their times may not."""
    milliseconds, sequence = position_order(revision)
    return milliseconds * 1000 + min(sequence, 999)


def is_position(text: str) -> bool:
    """Return True if a client's text has the form of a position: two unsigned 64-bit numbers."""
    milliseconds, separator, sequence = text.partition("-")
    return separator == "-" and _is_unsigned_64_bit(milliseconds) and _is_unsigned_64_bit(sequence)


def _is_unsigned_64_bit(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(1 << 64)) and int(text) < 1 << 64


# Page tokens: the last entry of a page, as clients send it back.

_SCORES = 2**53
"""Upper limit of the whole numbers that sorted sets store exactly."""


class IndexEntry(NamedTuple):
    """A task or context in a list. Lists run from the greatest entry down; `score` is in microseconds."""

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
