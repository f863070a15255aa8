"""What may go wrong with a peer. The model reads the messages.

PeerError
├── PeerAwayError            it does not answer now
├── PeerCredentialsError     it wants to know better who asks
├── PeerRefusedError         it answers, and refuses
│   ├── PeerForgotError      it knows no such task
│   └── PeerUnableError      it has no such operation
└── PeerTaskError            its task came to nothing: failed, rejected or canceled
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
"""Characters of what a peer says of an error."""

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_HOPELESS = (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.DecodingError, httpx.LocalProtocolError)
_NOT_NOW = frozenset({408, 425, 429})
_NOT_IMPLEMENTED = 501
_UNTOUCHED = frozenset({429, 503})

_Code = grpc.StatusCode


class PeerError(Exception):
    """A peer could not be asked, or its task came to nothing."""


class PeerAwayError(PeerError):
    """A peer does not answer now. `is_unsent`: the request has surely not been taken.

    `wait` is how many seconds the peer asks to be left alone.
    """

    def __init__(self, text: str, *, is_unsent: bool = False, wait: float = 0) -> None:
        super().__init__(text)
        self.is_unsent = is_unsent
        self.wait = wait


class PeerCredentialsError(PeerError):
    """A peer does not accept the credentials of the call, or wants some."""


class PeerRefusedError(PeerError):
    """A peer answers that it will not do what it was asked for, or answers what is no A2A."""


class PeerForgotError(PeerRefusedError):
    """A peer does not know a task."""


class PeerUnableError(PeerRefusedError):
    """A peer does not have an operation."""


class PeerTaskError(PeerError):
    """A peer's task has failed, or was rejected or canceled."""


def peer_error(error: Exception) -> PeerError:
    """Return what an exception of the A2A client, or of HTTP, means. Raise it `from None`."""
    if isinstance(error, PeerError):
        return error
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        return _of_protocol(error)
    # The client's own errors say in words alone what they come from.
    cause = error.__cause__ if isinstance(error, A2AClientError) else error
    return _of_cause(cause) or _of_answer(error)


def excerpt(text: str) -> str:
    """Return the text on one line, cut to what an error may quote."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_EXCERPT else f"{line[: LONGEST_EXCERPT - 1]}…"


def _of_cause(cause: BaseException | None) -> PeerError | None:
    """Return what went wrong on the way, None if nothing did."""
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
    """Return what is wrong with an answer that came."""
    if isinstance(error, A2AClientTimeoutError):
        return PeerAwayError("it took too long to answer")
    _log.info("a peer's answer cannot be read", error_type=type(error).__name__, error=excerpt(str(error)))
    problem = problem_of(error)
    return PeerRefusedError(
        f"what it answers is no A2A ({problem})" if problem else "what it answers is no A2A"
    )


_IN_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_AT_FIELD = re.compile(r" at \w+\.([\w.\[\]]+?)\.*$")
"""How protobuf says where something is wrong: fields from the outermost on, as a rule with a path behind."""


def problem_of(error: Exception) -> str:
    """Return which field is wrong, and what was expected there, as far as the client says."""
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
            # Of these the library itself says which addresses of our network it tried.
            _log.info("a peer could not be asked", error_type="AioRpcError", error=text)
            return PeerAwayError(error.code().name)
        case _Code.NOT_FOUND:
            return PeerForgotError(text)
        case _Code.UNIMPLEMENTED:
            return PeerUnableError(text)
        case _:
            return PeerRefusedError(text)


def _said(response: httpx.Response) -> str:
    """Return what the body says of the error, if it says that in a way that APIs do."""
    try:
        text = response.json()["error"]["message"]
    except (httpx.StreamError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {excerpt(text)}" if text and isinstance(text, str) else ""


def _lost(error: httpx.RequestError) -> str:
    """Say in our words what became of a request; the library's own may name addresses of our network."""
    _log.info("a peer could not be asked", error_type=type(error).__name__, error=excerpt(str(error)))
    if isinstance(error, httpx.TimeoutException):
        return "it took too long to answer"
    return "no connection could be made" if isinstance(error, _UNSENT) else "the connection was lost"
