"""Common fields of requests: ids, the length of a history, pages. Pure.

All functions raise A2A errors that name the field, the problem and the expected value.
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
from everloop.runtime.protocol.a2a_tasks import STATES_BY_NUMBER
from everloop.stores.log.log_types import TaskQuery
from everloop.workflows.contract.parts import PATH_STEPS
from everloop.workflows.contract.tasks import TaskState

_Place = TypeVar("_Place")

MAX_ID_BYTES = 255
"""Maximum bytes of an id. Ids become workflow ids, update ids and keyword search attributes; Temporal may
reject longer ones."""

MAX_PARTS = 1000
"""Maximum parts of a message. Each costs work wherever the message goes. Files have their own limit."""


def check_id(value: str, field: str) -> str:
    """Return a valid id.

    Raises:
        InvalidParamsError: it is empty, longer than 255 bytes, a path segment such as "..", or has control
            characters.
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
    """Return the position in a list that a page token encodes; `read` decodes its bytes.

    Raises:
        InvalidParamsError: the token is malformed, or `read` raises ValueError or TypeError.
    """
    try:
        return read(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, TypeError):
        raise InvalidParamsError(NO_SUCH_PAGE) from None


def page_token(place: bytes) -> str:
    """Return the page token of a position in a list."""
    return base64.urlsafe_b64encode(place).decode()


_MARK_BYTES = 8


def marked(place: bytes, query: object) -> bytes:
    """Return Temporal's position in a list with a digest of the query: Temporal misreads other positions."""
    return hashlib.sha256(repr(query).encode() + place).digest()[:_MARK_BYTES] + place


def unmarked(token: bytes, query: object) -> bytes:
    """Return the position without its digest.

    Raises:
        ValueError: the token is malformed, or belongs to another list.
    """
    place = token[_MARK_BYTES:]
    if token != marked(place, query):
        raise ValueError
    return place


def read_history_length(
    request: pb.GetTaskRequest | pb.ListTasksRequest | pb.SendMessageConfiguration,
) -> int | None:
    """Return the requested number of messages of the history; None for all (A2A 1.0 §3.2.4).

    Raises:
        InvalidParamsError: it is negative.
    """
    if not request.HasField("history_length"):
        return None
    if request.history_length < 0:
        raise InvalidParamsError(f"historyLength is {request.history_length}; it must be 0 or more")
    return request.history_length


def read_list_request(params: pb.ListTasksRequest, viewer: Viewer) -> TaskQuery:
    """Validate a ListTasks request (A2A 1.0 §3.1.4). The default page size is 50.

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
    """Return the requested state, None for any. gRPC also passes numbers without a name."""
    if number and number not in STATES_BY_NUMBER:
        raise InvalidParamsError(f"status is {number}, which is no state; give one, or leave it out")
    return STATES_BY_NUMBER.get(number)


def _read_oldest(params: pb.ListTasksRequest) -> int | None:
    """Return `statusTimestampAfter` in microseconds, rounded up: statuses of that exact time match."""
    if not params.HasField("status_timestamp_after"):
        return None
    try:
        return -(-params.status_timestamp_after.ToNanoseconds() // 1_000)
    except ValueError:
        raise InvalidParamsError(
            "statusTimestampAfter is no time between the years 1 and 9999; give one as RFC 3339 writes it"
        ) from None
