"""Errors of peers. The model reads the messages.

PeerError
├── PeerAwayError            it does not answer now
├── PeerCredentialsError     it requires other credentials
├── PeerRefusedError         it answers, and refuses
│   ├── PeerForgotError      the task is unknown to it
│   └── PeerUnableError      it lacks the operation
└── PeerTaskError            its task failed, or was rejected or canceled
"""

import re
from datetime import UTC, datetime

import grpc
import httpx
import structlog
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.utils.errors import A2AError, MethodNotFoundError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import ParseError
from pydantic import ValidationError

from everloop.runtime.outbound.policy import retry_after

_log = structlog.get_logger()

LONGEST_EXCERPT = 1_000
"""Maximum characters of a peer's error text."""

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_HOPELESS = (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.DecodingError, httpx.LocalProtocolError)
_NOT_NOW = frozenset({408, 425, 429})
_NOT_IMPLEMENTED = 501
_UNTOUCHED = frozenset({429, 503})

_Code = grpc.StatusCode


class PeerError(Exception):
    """A call of a peer, or its task, failed."""


class PeerAwayError(PeerError):
    """A peer does not answer now. `is_unsent`: the request was certainly not accepted.

    `wait` is the retry delay of the peer in seconds.
    """

    def __init__(self, text: str, *, is_unsent: bool = False, wait: float = 0) -> None:
        super().__init__(text)
        self.is_unsent = is_unsent
        self.wait = wait


class PeerCredentialsError(PeerError):
    """A peer does not accept the credentials of the call, or requires some."""


class PeerRefusedError(PeerError):
    """A peer refuses a request, or its answer is not A2A."""


class PeerForgotError(PeerRefusedError):
    """A task is unknown to the peer."""


class PeerUnableError(PeerRefusedError):
    """A peer lacks an operation."""


class PeerTaskError(PeerError):
    """A peer's task has failed, or was rejected or canceled."""


def peer_error(error: Exception) -> PeerError:
    """Return the error for an exception of the A2A client, or of HTTP. Raise it `from None`."""
    if isinstance(error, PeerError):
        return error
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        return _of_protocol(error)
    # The client's own errors have their cause only in the text.
    cause = error.__cause__ if isinstance(error, A2AClientError) else error
    return _of_cause(cause) or _of_answer(error)


def excerpt(text: str) -> str:
    """Return the text on one line, truncated for errors."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_EXCERPT else f"{line[: LONGEST_EXCERPT - 1]}…"


def _of_cause(cause: BaseException | None) -> PeerError | None:
    """Return the error of the connection, None without one."""
    match cause:
        case httpx.HTTPStatusError():
            return _of_status(cause.response)
        case httpx.RequestError() if not isinstance(cause, _HOPELESS):
            return PeerAwayError(_lost(cause), is_unsent=isinstance(cause, _UNSENT))
        case grpc.aio.AioRpcError():
            return _of_grpc(cause)
        case _:
            return None


def _of_answer(error: Exception) -> PeerError:
    if isinstance(error, A2AClientTimeoutError):
        return PeerAwayError("it took too long to answer")
    _log.info("a peer's answer cannot be read", error_type=type(error).__name__, error=excerpt(str(error)))
    problem = problem_of(error)
    return PeerRefusedError(
        f"what it answers is no A2A ({problem})" if problem else "what it answers is no A2A"
    )


_IN_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_AT_FIELD = re.compile(r" at \w+\.([\w.\[\]]+?)\.*$")
"""References to fields in protobuf's errors: from the outermost on, usually with a path behind."""


def problem_of(error: Exception) -> str:
    """Return the wrong field, and the expected value, as far as the client reports it."""
    match error:
        case ParseError():
            text = excerpt(str(error).partition("\n")[0])
            at = _AT_FIELD.search(text)
            field = at[1] if at else ".".join(_IN_FIELD.findall(text))
            problem = _AT_FIELD.sub("", _IN_FIELD.sub("", text)).rstrip(".")
            return f"{field}: {problem}" if field else problem
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            return excerpt(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        case A2AClientError():
            return excerpt(str(error))
        case _:
            return ""


def _of_protocol(error: A2AError) -> PeerError:
    text = excerpt(error.message)
    if isinstance(error, TaskNotFoundError):
        return PeerForgotError(text)
    if isinstance(error, UnsupportedOperationError | MethodNotFoundError):
        return PeerUnableError(text)
    return PeerRefusedError(text)


def _of_status(response: httpx.Response) -> PeerError:
    status, text = response.status_code, f"HTTP {response.status_code}{_said(response)}"
    if status in {401, 403}:
        return PeerCredentialsError(text)
    if status == _NOT_IMPLEMENTED:
        return PeerUnableError(text)
    if response.is_server_error or status in _NOT_NOW:
        wait = retry_after(response.headers, datetime.now(UTC))
        seconds = wait.total_seconds() if wait else 0
        return PeerAwayError(text, is_unsent=status in _UNTOUCHED, wait=seconds)
    return PeerRefusedError(text)


def _of_grpc(error: grpc.aio.AioRpcError) -> PeerError:
    text = excerpt(f"{error.code().name}: {error.details() or ''}")
    match error.code():
        case _Code.UNAUTHENTICATED | _Code.PERMISSION_DENIED:
            return PeerCredentialsError(text)
        case _Code.UNAVAILABLE | _Code.DEADLINE_EXCEEDED | _Code.RESOURCE_EXHAUSTED | _Code.ABORTED:
            # The text of these names the addresses of our network that were tried.
            _log.info("a peer could not be asked", error_type="AioRpcError", error=text)
            return PeerAwayError(error.code().name)
        case _Code.NOT_FOUND:
            return PeerForgotError(text)
        case _Code.UNIMPLEMENTED:
            return PeerUnableError(text)
        case _:
            return PeerRefusedError(text)


def _said(response: httpx.Response) -> str:
    """Return the error in a body of a usual format, if any."""
    try:
        text = response.json()["error"]["message"]
    except (httpx.StreamError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {excerpt(text)}" if text and isinstance(text, str) else ""


def _lost(error: httpx.RequestError) -> str:
    """Return the error of a lost request in our words; the library's may name addresses of our network."""
    _log.info("a peer could not be asked", error_type=type(error).__name__, error=excerpt(str(error)))
    if isinstance(error, httpx.TimeoutException):
        return "it took too long to answer"
    return "no connection could be made" if isinstance(error, _UNSENT) else "the connection was lost"
