"""Task views and event streams: what clients of a task see."""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from everloop.stores.leases import Lease
from everloop.stores.retention import MAX_TASK_BYTES
from everloop.workflows.contract.events import StatusChanged, TaskEvent
from everloop.workflows.contract.tasks import Artifact, Route, TaskState, TaskView

START = "0-0"
"""The position before the first event of every stream."""

MAX_PAGE_BYTES = 8_000_000
"""Of the views on one page of a list, as they are stored."""


@dataclass(frozen=True)
class Snapshot:
    """A view and the position of the last event folded into it, taken in one step.

    `size` is that of all that was asked for, in bytes, as it is stored. `left_out`: it was too much, so that
    the view has neither history nor artifacts; these are the ids of the messages in the history.
    """

    view: TaskView
    position: str
    size: int = field(default=0, compare=False)
    left_out: frozenset[str] | None = None

    @property
    def is_whole(self) -> bool:
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


@dataclass(frozen=True)
class ViewArtifact:
    """An artifact of a view, with position and attempt of its current draft."""

    artifact: Artifact
    position: int
    attempt: int


class StreamedEvent(NamedTuple):
    """An event and where it stands. Positions of one stream grow; compare them with `position_order`."""

    task_id: str
    position: str
    event: TaskEvent


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
    """The page token is not one that ListTasks returned. Leave it out to start at the first page."""


class TaskViews(ABC):
    """The folded view of every task and the stream of its events.

    A view and its stream change in one atomic step, by the rules in `everloop.workflows.contract.events`; so
    does the stream of a client's task with those of its sub-agents.

    `max_bytes` is how large a view may get (default `MAX_TASK_BYTES`). Whoever adds to one asks first how
    large it is (`size`): what is published is folded in, whatever its size.
    """

    def __init__(self, max_bytes: int = MAX_TASK_BYTES) -> None:
        self.max_bytes = max_bytes

    @abstractmethod
    async def create(self, view: TaskView) -> None:
        """Write the static part of a view (ids, owner, creation, history), and its status if there is none.

        Does nothing where the view is already whole. Publishes `TaskCreated` when it wrote something.
        """

    @abstractmethod
    async def publish(
        self, task_id: str, run_id: str, events: Sequence[TaskEvent], lease: Lease | None = None
    ) -> Sequence[TaskState]:
        """Fold events into the view and append them to the stream, in one atomic step.

        Returns the states that the task took by this: none for a status that is old news, or that says
        something new of the same state. `lease` is that of the attempt at a call which publishes them.

        Raises:
            OvertakenError: a later attempt has claimed the call.
        """

    @abstractmethod
    async def end(self, task_id: str, run_id: str, status: StatusChanged) -> bool:
        """Give a task the last status that its run did not publish itself, and return whether this did it.

        It does nothing where the view is unknown or says an end already, or where it follows another run
        whose status is later: what was found out of a run may be out of date when it arrives. An empty run
        id is that of the run that the view follows.
        """

    @abstractmethod
    async def load(
        self, task_id: str, *, most: int | None = None, history_length: int | None = None
    ) -> Snapshot | None:
        """Return view and position, or None if the view is unknown or lacks its static part.

        The view has its newest `history_length` messages (None: all). Where it takes more than `most` bytes
        (None: however many) it comes without messages and artifacts.
        """

    @abstractmethod
    async def size(self, task_id: str) -> int:
        """Return how many bytes the view of a task takes as it is stored; 0 if there is none."""

    @abstractmethod
    async def state(self, task_id: str) -> TaskState | None:
        """Return the state of a task, or None where `load` does; it reads nothing else."""

    @abstractmethod
    async def list_open(self, first: int, count: int) -> Sequence[OpenTask]:
        """Return clients' tasks that have not ended, whoever owns them, by the time of their last status.

        The oldest is the first; at most `count` from that number on. What changes meanwhile may be left out.
        """

    @abstractmethod
    async def keep_route(self, task_id: str, route: Route) -> None:
        """Keep what became of a message that has no task of its own, as long as tasks that have ended are.

        Temporal may forget it sooner, and the same message must not be answered anew.
        """

    @abstractmethod
    async def route(self, task_id: str) -> Route | None:
        """Return what was kept of the message whose task would have this id."""

    @abstractmethod
    async def artifact(self, task_id: str, artifact_id: str) -> ViewArtifact | None:
        """Return one artifact of a view, None if there is none; it reads nothing else."""

    @abstractmethod
    async def restore(self, view: TaskView) -> None:
        """Put back a view that the workflow answered, except where newer events were folded in meanwhile."""

    @abstractmethod
    async def read(
        self, positions: Mapping[str, str], *, wait: float, limit: int = 200
    ) -> list[StreamedEvent]:
        """Return events after the given position of each task's stream, oldest first within a task.

        Waits up to `wait` seconds (0: not at all) for the first one; `wake` ends the wait early.
        At most `limit` events per task.
        """

    @abstractmethod
    async def wake(self) -> None:
        """Make the `read` of this object that waits now, or else the next one, return at once."""

    @abstractmethod
    async def holds(self, task_id: str, position: str) -> bool:
        """Whether the stream still holds the event at this position, so that reading on misses nothing."""

    @abstractmethod
    async def list_waiting(self, query: WaitingQuery) -> WaitingPage:
        """List the tasks that ask others than their owner, those that have waited longest first.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """

    @abstractmethod
    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """List the tasks of an owner, newest status first.

        A task that gets a new status while a client pages moves to the front; it is neither listed twice
        nor does it push another one out of the pages. A page ends early where it would have more than about
        `MAX_PAGE_BYTES`. A task of which more is wanted comes without history and artifacts.

        Raises:
            InvalidPageTokenError: the token was not made by this method.
        """


def position_order(position: str) -> tuple[int, int]:
    """Return a sort key for stream positions (`milliseconds-sequence`)."""
    milliseconds, _, sequence = position.partition("-")
    return int(milliseconds), int(sequence or 0)


def is_position(text: str) -> bool:
    """Whether a client's text has the form of a position: two unsigned 64-bit numbers."""
    milliseconds, separator, sequence = text.partition("-")
    return separator == "-" and _is_unsigned_64_bit(milliseconds) and _is_unsigned_64_bit(sequence)


def _is_unsigned_64_bit(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(1 << 64)) and int(text) < 1 << 64


# Where a page of a task list ends, as clients hand it back.

_SCORES = 2**53
"""Sorted sets hold whole numbers exactly up to here."""


class IndexEntry(NamedTuple):
    """A task in a list. They run from the greatest entry down; `score` is in microseconds."""

    score: int
    task_id: str


def encode_page_token(last: IndexEntry) -> str:
    """Return the token of the page that begins after this entry."""
    return base64.urlsafe_b64encode(f"{last.score}:{last.task_id}".encode()).decode()


def decode_page_token(token: str) -> IndexEntry | None:
    """Return the entry after which the page begins, None for the first page.

    Raises:
        InvalidPageTokenError: `encode_page_token` did not make this token.
    """
    if not token:
        return None
    try:
        score, _, task_id = base64.urlsafe_b64decode(token).decode().partition(":")
        entry = IndexEntry(int(score), task_id)
    except (ValueError, binascii.Error):
        entry = None
    if entry is None or abs(entry.score) >= _SCORES or encode_page_token(entry) != token:
        raise InvalidPageTokenError(
            "the page token is not one that a list of tasks returned; leave it out to start at the first page"
        )
    return entry
