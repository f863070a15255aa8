"""Errors of the gateway, and their responses to clients: one table.

GatewayError
├── TaskUnknownError        no task of that id belongs to the caller
├── TaskReadOnlyError       the task is a sub-agent's, which accepts nothing from its client
├── TaskEndedError          the task has ended and accepts no more messages
├── TaskFullError           the task would get too large with the message
├── TaskBusyError           the task has to read other messages first
├── TaskTooLargeError       the task is too large for one response
├── AnswerInvalidError      the task waits for an answer, and the message is not one
├── MessageChangedError     the task has another message of this id
├── KeyReusedError          the Idempotency-Key was used with another message
├── PayloadLostError        a part of the task is lost from the blob store for good
└── UnavailableError        a server that the gateway needs does not respond now
    ├── TemporalUnavailableError
    ├── PayloadsUnavailableError
    ├── NoWorkerError       Temporal responds, but no worker does
    └── TaskPausedError     an operator has paused the task
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeVar

import structlog
from a2a.utils import errors as sdk
from a2a.utils.errors import (
    A2AError,
    ErrorMapping,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everloop.runtime.blobs import BlobsUnavailableError
from everloop.runtime.temporal.describe import is_not_found, is_unavailable
from everloop.stores.log.log_types import InvalidPageTokenError
from everloop.stores.push.configs import TooManyPushConfigsError
from everloop.stores.push.deliveries import NotificationError
from everloop.workflows.contract.failures import BLOB_MISSING

# Errors of this server that A2A lacks, registered with all bindings of the SDK.
#
# A2A 1.0 §5.4 leaves authentication, authorisation, overload and outages to the statuses of HTTP and gRPC.


_Error = TypeVar("_Error", bound=A2AError)


def register_error(
    jsonrpc: int, http: int, grpc_status: str, reason: str
) -> Callable[[type[_Error]], type[_Error]]:
    """Register an error's codes for each binding. JSON-RPC leaves -32099 to -32000 to servers."""

    def register(kind: type[_Error]) -> type[_Error]:
        sdk.JSON_RPC_ERROR_CODE_MAP[kind] = jsonrpc
        sdk.A2A_ERROR_MAPPING[kind] = ErrorMapping(http, grpc_status, reason)
        sdk.A2A_ERROR_REASONS[kind] = reason
        return kind

    return register


class RefusalError(A2AError):
    """Rejection of a call before, or instead of, its operation.

    `retry_after` is in seconds, None: never. `headers` are added to the response over HTTP.
    """

    def __init__(
        self,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        retry_after: int | None = None,
        challenge: str = "",
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.challenge = challenge
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
        if challenge:
            self.headers["WWW-Authenticate"] = challenge


@register_error(-32031, 401, "UNAUTHENTICATED", "UNAUTHENTICATED")
class UnauthenticatedError(RefusalError):
    """The caller is not authenticated. `challenge` is the value of HTTP's WWW-Authenticate."""


@register_error(-32032, 403, "PERMISSION_DENIED", "PERMISSION_DENIED")
class ForbiddenError(RefusalError):
    """The caller is authenticated, and lacks permission."""


@register_error(-32033, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS")
class TooManyRequestsError(RefusalError):
    """The owner has exceeded a limit."""


@register_error(-32600, 431, "RESOURCE_EXHAUSTED", "TOO_MANY_HEADERS")
class TooManyHeadersError(RefusalError):
    """The request has more headers, or more metadata, than allowed."""


@register_error(-32603, 503, "UNAVAILABLE", "UNAVAILABLE")
class UnavailableNowError(RefusalError):
    """A required server does not respond."""


_log = structlog.get_logger()


class GatewayError(Exception):
    """The request cannot be answered. `text` is the default message to the client."""

    text: ClassVar[str] = "the request cannot be answered"

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.text)


class TaskUnknownError(GatewayError):
    """No such task. The same answer for another owner's task: ids are not to be probed."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task {task_id[:255]!r} here")


class TaskReadOnlyError(GatewayError):
    """The task is a sub-agent's. What it asks is asked by the client's task, which also ends it."""

    def __init__(self, task_id: str, root: str) -> None:
        super().__init__(
            f"task {task_id!r} is a sub-agent's, which is read only; what it asks is asked by task {root!r}: "
            "send messages and cancellations to that one"
        )


class TaskEndedError(GatewayError):
    """The task has ended and accepts no more messages."""

    text = "The task has ended and takes no more messages. Start a new one with a message without taskId."


class TaskFullError(GatewayError):
    """The task would get too large with this message."""

    def __init__(self, task_id: str, size: int, limit: int) -> None:
        super().__init__(
            f"task {task_id!r} has {size / 1e6:.1f} MB as it is stored; with this message it would have more "
            f"than the {limit / 1e6:.1f} MB that a task may have here (EVERLOOP_MAX_TASK_BYTES). Start a new "
            "one with a message without taskId; with this task in referenceTaskIds it knows what came of it"
        )


class TaskBusyError(GatewayError):
    """The task has no room for more messages until it has read those that wait."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {task_id!r} has not read its last messages yet, and takes at most 4 MB of unread ones; "
            "send this one again later"
        )


class TaskTooLargeError(GatewayError):
    """The task is too large for one answer."""

    def __init__(self, task_id: str, size: int, limit: int) -> None:
        super().__init__(
            f"task {task_id!r} has {size / 1e6:.1f} MB as it is stored, more than the {limit / 1e6:.1f} MB "
            "that this server puts into one answer (EVERLOOP_MAX_TASK_BYTES). Ask with a smaller "
            "historyLength (0: no messages), or read its status with ListTasks; files and large results have "
            "addresses of their own"
        )


class AnswerInvalidError(GatewayError):
    """The message does not answer what the task asks; the text says what is expected."""


class MessageChangedError(GatewayError):
    """The task has taken in a message of this id that says something else. Give each message its own id."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} has come with other content before, which the task has taken in; "
            "give each message an id of its own"
        )


class KeyReusedError(GatewayError):
    """The Idempotency-Key of the request has come with another message before."""

    def __init__(self) -> None:
        super().__init__(
            "the header Idempotency-Key has come with another message; give each message its own"
        )


class PayloadLostError(GatewayError):
    """A part of the task is lost or damaged in the blob store."""

    text = "A part of the task is lost or damaged in the blob store. An operator has to restore it."


class UnavailableError(GatewayError):
    """A server that the gateway needs does not answer now."""


class TemporalUnavailableError(UnavailableError):
    """Temporal does not answer."""

    text = "Temporal does not answer. Nothing is lost: send the same request again in a few seconds."


class PayloadsUnavailableError(UnavailableError):
    """The blob store does not answer."""

    text = "The blob store does not answer. Nothing is lost: send the same request again in a few seconds."


class NoWorkerError(UnavailableError):
    """No worker answers for the task."""

    text = "No worker answers for this task now. Send the same request again in a few seconds."


class TaskPausedError(UnavailableError):
    """An operator has paused the task."""

    text = "An operator has paused the task. It goes on where it is; send the same request again later."


@dataclass(frozen=True)
class ErrorReply:
    """Response to a failure; without a `message`, with the failure's own text. `retry_after`: seconds."""

    error: type[A2AError]
    message: str = ""
    retry_after: int | None = None


_STORE_DOWN = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, OutOfMemoryError, OSError)

STORE_FAILURES = (
    *_STORE_DOWN,
    NotificationError,  # of a status that the store has accepted; it is sent again
)

NO_SUCH_PAGE = "pageToken is not one that this list returned; leave it out to start over"

_STORE_ANSWER = ErrorReply(
    UnavailableNowError,
    "The task store does not answer. Nothing is lost: send the same request again in a few seconds.",
    retry_after=2,
)

ANSWERS: dict[type[Exception], ErrorReply] = {
    TaskUnknownError: ErrorReply(TaskNotFoundError),
    TaskReadOnlyError: ErrorReply(UnsupportedOperationError),
    TaskEndedError: ErrorReply(UnsupportedOperationError),
    TaskFullError: ErrorReply(UnsupportedOperationError),
    TaskTooLargeError: ErrorReply(UnsupportedOperationError),
    TaskBusyError: ErrorReply(UnavailableNowError, retry_after=5),
    AnswerInvalidError: ErrorReply(InvalidParamsError),
    MessageChangedError: ErrorReply(InvalidParamsError),
    KeyReusedError: ErrorReply(InvalidParamsError),
    TooManyPushConfigsError: ErrorReply(InvalidParamsError),
    InvalidPageTokenError: ErrorReply(InvalidParamsError, NO_SUCH_PAGE),
    TemporalUnavailableError: ErrorReply(UnavailableNowError, retry_after=2),
    PayloadLostError: ErrorReply(InternalError),
    PayloadsUnavailableError: ErrorReply(UnavailableNowError, retry_after=2),
    NoWorkerError: ErrorReply(UnavailableNowError, retry_after=5),
    TaskPausedError: ErrorReply(UnavailableNowError, retry_after=30),
    BlobsUnavailableError: ErrorReply(UnavailableNowError, PayloadsUnavailableError.text, retry_after=2),
    **dict.fromkeys(_STORE_DOWN, _STORE_ANSWER),
    NotificationError: ErrorReply(UnavailableNowError, TemporalUnavailableError.text, retry_after=2),
}


@contextmanager
def a2a_errors() -> Generator[None]:
    """Turn any failure into an A2A error without internals."""
    try:
        yield
    except A2AError:
        raise
    except Exception as failure:  # noqa: BLE001 -- the SDK would show the text of any other exception
        raise to_a2a(failure) from None


def to_a2a(failure: Exception) -> A2AError:
    """Look the failure up in the table. Log an unexpected one under a reference, which the client gets."""
    answer = next((ANSWERS[kind] for kind in type(failure).__mro__ if kind in ANSWERS), None)
    if answer is None:
        reference = uuid.uuid4().hex[:12]
        _log.error("request failed", reference=reference, exc_info=failure)
        return InternalError(f"internal error, reference {reference}")
    message = answer.message or str(failure) or "the request cannot be answered now"
    if answer.retry_after is None:
        return answer.error(message)
    reason = str(failure.__cause__ or failure)
    _log.warning("request cannot be served now", error=type(failure).__name__, reason=reason)
    return UnavailableNowError(message, retry_after=answer.retry_after)


# Meaning of failed calls to Temporal.

CALL_TIMEOUT = 5.0
"""Seconds for one call to Temporal."""

RPC_TIMEOUT = timedelta(seconds=CALL_TIMEOUT)
"""The same in the type of Temporal's client."""


@asynccontextmanager
async def translate_temporal_errors(seconds: float = CALL_TIMEOUT) -> AsyncGenerator[None]:
    """Limit the time of a call.

    Raises:
        TemporalUnavailableError: it timed out, or Temporal is unavailable.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TemporalUnavailableError from error
    except RPCError as error:
        if is_unavailable(error):
            raise TemporalUnavailableError from error
        raise


@asynccontextmanager
async def translate_not_found(task_id: str) -> AsyncGenerator[None]:
    """Translate Temporal's error for a missing task.

    Raises:
        TaskUnknownError: Temporal does not have the task.
    """
    try:
        yield
    except RPCError as error:
        if is_not_found(error):
            raise TaskUnknownError(task_id) from error
        raise


@asynccontextmanager
async def translate_blob_errors() -> AsyncGenerator[None]:
    """Translate errors of the blob store for large payloads.

    Raises:
        PayloadLostError: one is lost for good.
        PayloadsUnavailableError: the store does not respond now.
    """
    try:
        yield
    except BlobsUnavailableError as error:
        raise PayloadsUnavailableError from error
    except ApplicationError as error:
        if error.type == BLOB_MISSING:
            raise PayloadLostError from error
        raise
