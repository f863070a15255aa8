"""What requests of every operation have: ids, the length of a history, pages. Pure.

Everything here raises A2A errors that name the field, what was wrong with it and what was expected.
"""

import base64
import hashlib
import unicodedata
from collections.abc import Callable
from typing import TypeVar

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE, MAX_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError

from everloop.gateway.context import Viewer
from everloop.gateway.errors import NO_SUCH_PAGE
from everloop.runtime.protocol.tasks import STATES_BY_NUMBER
from everloop.stores.log.interface import TaskQuery
from everloop.workflows.contract.parts import PATH_STEPS
from everloop.workflows.contract.tasks import TaskState

_Place = TypeVar("_Place")

MAX_ID_BYTES = 255
"""Ids become workflow ids, update ids and keyword search attributes; Temporal may refuse longer ones."""

MAX_PARTS = 1000
"""Parts of a message. Each costs some work wherever the message goes; files have a limit of their own."""


def check_id(value: str, field: str) -> str:
    """Return an id that is fit to be used as one.

    Raises:
        InvalidParamsError: it is empty, longer than 255 bytes, a step of a path, or has control characters.
    """
    if not value:
        raise InvalidParamsError(f"{field} is empty; give an id")
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise InvalidParamsError(f"{field} has {size} bytes; an id may have {MAX_ID_BYTES}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidParamsError(f"{field} has control characters; use letters, digits and punctuation")
    if value in PATH_STEPS:
        raise InvalidParamsError(f"{field} is a step of a path, not a name; give another id")
    return value


def read_token(token: str, read: Callable[[bytes], _Place]) -> _Place:
    """Return the place in a list that a page token stands for: what `read` makes of its bytes.

    Raises:
        InvalidParamsError: it is no token of ours, or `read` raises ValueError or TypeError.
    """
    try:
        return read(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, TypeError):
        raise InvalidParamsError(NO_SUCH_PAGE) from None


def page_token(place: bytes) -> str:
    """Return a place in a list as clients get it."""
    return base64.urlsafe_b64encode(place).decode()


_MARK_BYTES = 8


def marked(place: bytes, wanted: object) -> bytes:
    """Return Temporal's place in the list of what is wanted, with a mark of both: it reads no others well."""
    return hashlib.sha256(repr(wanted).encode() + place).digest()[:_MARK_BYTES] + place


def unmarked(token: bytes, wanted: object) -> bytes:
    """Return the place that was marked.

    Raises:
        ValueError: it is one of another list, or none.
    """
    place = token[_MARK_BYTES:]
    if token != marked(place, wanted):
        raise ValueError
    return place


def read_history_length(
    request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration,
) -> int | None:
    """Return how many messages of the history are wanted; None means all (A2A 1.0 §3.2.4).

    Raises:
        InvalidParamsError: it is negative.
    """
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParamsError(f"historyLength is {request.history_length}; it must be 0 or more")
    return request.history_length


def read_list_request(params: pb.ListTasksRequest, viewer: Viewer) -> TaskQuery:
    """Check a ListTasks request (A2A 1.0 §3.1.4); the page size is 50 unless given.

    Raises:
        InvalidParamsError: the page size, the history length or the time is out of range.
    """
    page_size = params.page_size if params.HasField("page_size") else DEFAULT_LIST_TASKS_PAGE_SIZE
    if not 1 <= page_size <= MAX_LIST_TASKS_PAGE_SIZE:
        raise InvalidParamsError(f"pageSize is {page_size}; it must be 1 to {MAX_LIST_TASKS_PAGE_SIZE}")
    return TaskQuery(
        owner=viewer.owner,
        agent_id=viewer.agent_id,
        context_id=check_id(params.context_id, "contextId") if params.context_id else None,
        state=_read_state(params.status),
        updated_since=_read_oldest(params),
        page_size=page_size,
        page_token=params.page_token,
        with_history=read_history_length(params),
        with_artifacts=params.include_artifacts,
    )


def _read_state(number: int) -> TaskState | None:
    """Return the state that tasks are wanted in, None: any; gRPC hands on numbers that name none."""
    if number and number not in STATES_BY_NUMBER:
        raise InvalidParamsError(f"status is {number}, which is no state; give one, or leave it out")
    return STATES_BY_NUMBER.get(number)


def _read_oldest(params: pb.ListTasksRequest) -> int | None:
    """Return `statusTimestampAfter` in microseconds, rounded up: statuses of that very time match."""
    if not params.HasField("status_timestamp_after"):
        return None
    try:
        return -(-params.status_timestamp_after.ToNanoseconds() // 1_000)
    except ValueError:
        raise InvalidParamsError(
            "statusTimestampAfter is no time between the years 1 and 9999; give one as RFC 3339 writes it"
        ) from None
