"""Errors of requests to a gateway. Each message says what was wrong and what to do.

ClientError
├── UnreachableError         no connection, or it was lost
├── UnauthenticatedError     the caller is not authenticated
├── ForbiddenError           the caller lacks permission
├── NotFoundError            there is no such task, artifact, agent or address
├── InvalidError             the server rejects the request
│   └── UnsupportedError     it does not support such requests, or not in this state: the task has ended
├── BusyError                not now; `retry_after` says when
├── ServerError              the server failed, or its response cannot be read
├── ExtensionMissingError    the server lacks the extension for this call
├── WaitTimeoutError         the task takes longer than the timeout; it goes on (`events`)
└── TaskNotCompletedError    the task has failed, or waits (`Result.raise_for_state`, `events`)
"""

import re
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

import grpc
import httpx
from a2a.client.errors import A2AClientError
from a2a.utils.errors import A2A_ERROR_REASONS, JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import ParseError
from pydantic import ValidationError

_LONGEST = 1_000
"""Maximum characters of a server's error text."""


class ClientError(Exception):
    """A request failed.

    `reason` is the server's code, such as TASK_NOT_FOUND, and `status` that of HTTP; empty and 0 if
    missing. The message is `problem`, and `advice` if there is any: that names arguments of `Client`.
    """

    def __init__(self, message: str, *, advice: str = "", reason: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.problem = message
        self.advice = advice
        self.reason = reason
        self.status = status

    def __str__(self) -> str:
        return f"{self.problem}; {self.advice}" if self.advice else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        """Restore a copy by its attributes: `args` is the message alone, and `__init__` takes more."""
        return type(self).__new__, (type(self),), {"args": self.args, **vars(self)}


class UnreachableError(ClientError):
    """There is no connection to the server, or it was lost.

    `is_unsent`: the request has certainly not arrived. Otherwise it may have: send it again with the
    same `message_id`. `cause` is the network's error, if there is one.
    """

    def __init__(
        self, message: str, *, advice: str = "", is_unsent: bool = False, cause: str = "", status: int = 0
    ) -> None:
        super().__init__(message, advice=advice, status=status)
        self.is_unsent = is_unsent
        self.cause = cause


class UnauthenticatedError(ClientError):
    """The caller is not authenticated."""


class ForbiddenError(ClientError):
    """The caller is authenticated, and lacks permission."""


class NotFoundError(ClientError):
    """There is no such task, artifact, agent or address, or it belongs to another owner."""


class InvalidError(ClientError):
    """The server rejects the request; the message says why."""


class UnsupportedError(InvalidError):
    """The server does not support such requests, or not in this state: the task has ended."""


class BusyError(ClientError):
    """The server is busy. Nothing is lost: try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float, reason: str = "", status: int = 0) -> None:
        super().__init__(message, reason=reason, status=status)
        self.retry_after = retry_after


class ServerError(ClientError):
    """The server failed, or its response cannot be read."""


class ExtensionMissingError(ClientError):
    """The server lacks the extension for this call: it is not an Everloop, or an older one."""


# Translation of failures of the SDK, of HTTP, and of JSON-RPC.

_STATUSES: Mapping[int, type[ClientError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    501: UnsupportedError,
}
_REASONS: Mapping[str, type[ClientError]] = {
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": ForbiddenError,
    "TASK_NOT_FOUND": NotFoundError,
    "TASK_NOT_CANCELABLE": UnsupportedError,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": UnsupportedError,
    "UNSUPPORTED_OPERATION": UnsupportedError,
    "METHOD_NOT_FOUND": UnsupportedError,
    "CONTENT_TYPE_NOT_SUPPORTED": InvalidError,
    "INVALID_PARAMS": InvalidError,
    "INVALID_REQUEST": InvalidError,
    "VERSION_NOT_SUPPORTED": UnsupportedError,
}
_CODES = {code: A2A_ERROR_REASONS.get(kind, "") for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}
_NOT_NOW = frozenset({408, 425, 429, 503})
_GATEWAYS = frozenset({502, 504})
"""Statuses of proxies, whose server may have received the request."""

_UNREADABLE = (httpx.TooManyRedirects, httpx.DecodingError)
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NGINX = re.compile(r"<title>400 (No required SSL certificate was sent|The SSL certificate error)<")
"""Response of nginx to a missing or invalid client certificate."""

CERTIFICATE_REQUIRED = "CERTIFICATE_REQUIRED"
"""Reason of a TLS error."""

GIVE_CERTIFICATE = "give cert="
MAY_DEMAND_CERTIFICATE = f"if it demands a client certificate, {GIVE_CERTIFICATE}"
TRUST_CERTIFICATE = "if it is the right one, give ca= with the certificates to trust"
NO_HEADER = "no header can have this value; look for line breaks and odd letters in the key or token"
IS_IT_RUNNING = "is the gateway running, and is this its address?"

_WAIT, _LONGEST_WAIT = 1.0, 600.0
"""Seconds to wait for a busy server: without Retry-After, and at most."""


_ERRORS = (
    A2AError,
    httpx.HTTPError,
    httpx.InvalidURL,
    ssl.SSLError,
    grpc.aio.AioRpcError,
    ParseError,
    ValidationError,
)


@contextmanager
def translate_errors(url: str) -> Generator[None]:
    """Translate errors of the SDK or HTTP for requests to `url` into `ClientError`s."""
    try:
        yield
    except _ERRORS as error:
        raise client_error(error, url) from None


def client_error(error: Exception, url: str) -> ClientError:
    """Return the error for an exception of the SDK or of HTTP. Raise it `from None`."""
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        reason = A2A_ERROR_REASONS.get(type(error), "")
        return _REASONS.get(reason, ServerError)(excerpt(error.message), reason=reason)
    cause = error.__cause__ if isinstance(error, A2AClientError) else error
    match cause:
        case httpx.HTTPStatusError():
            return answer_error(cause.response)
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return InvalidError(f"{url!r} is no address; give one such as http://127.0.0.1:8080")
        case httpx.RequestError() | ssl.SSLError() if not isinstance(cause, _UNREADABLE):
            return _lost(cause, url)
        case grpc.aio.AioRpcError():
            return _grpc_error(cause, url)
        case _:
            return unreadable(f"what {url} answers", error)


def answer_error(response: httpx.Response) -> ClientError:
    """Return the error in a response, whose body has been read."""
    if response.is_stream_consumed and (said := _NGINX.search(response.text[:200])):
        return _certificate_error(str(response.url), said[1])
    status, body = response.status_code, _body(response)
    reason, message = _reason(body), _message(body) or f"HTTP {response.status_code}"
    if status in _NOT_NOW:
        return BusyError(message, retry_after=_retry_after(response), reason=reason, status=status)
    if status in _GATEWAYS:
        return UnreachableError(f"{response.url} cannot be reached ({message})", status=status)
    kind = _REASONS.get(reason) or _STATUSES.get(status)
    if kind is None:
        kind = InvalidError if response.is_client_error else ServerError
    advice = "give api_key=, token= or cert= of somebody whom the server knows"
    return kind(
        excerpt(message),
        advice=advice if kind is UnauthenticatedError else "",
        reason=reason,
        status=status,
    )


async def check_success(response: httpx.Response) -> None:
    """Raise the error in a response, if it is one."""
    if not response.is_success:
        await response.aread()
        raise answer_error(response)


def rpc_error(error: Mapping[str, object]) -> ClientError:
    """Return the error in a JSON-RPC response."""
    reason = _reason({"error": error})
    code, message = error.get("code"), excerpt(str(error.get("message") or "the server gives no reason"))
    if reason in {"UNAVAILABLE", "TOO_MANY_REQUESTS"}:
        return BusyError(message, retry_after=_WAIT, reason=reason)
    reason = reason or _CODES.get(code if isinstance(code, int) else 0, "")
    return _REASONS.get(reason, ServerError)(message, reason=reason)


def unreadable(what: str, error: Exception) -> ServerError:
    """Return the error for an answer that is not A2A, with the wrong field if the SDK names it."""
    problem = _problem_of(error)
    return ServerError(f"{what} is no A2A ({problem})" if problem else f"{what} is no A2A")


def excerpt(text: str) -> str:
    """Return the text on one line, truncated for an error."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error behind an exception.

    A TLS 1.3 server reports an invalid client certificate when the first response is read, and httpx
    does not wrap that error; one of TLS 1.2 reports it during the handshake.
    """
    while error and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _certificate_error(url: str, said: str) -> ClientError:
    text = f"the server at {url} demands a client certificate that it knows ({said})"
    return UnauthenticatedError(text, advice=GIVE_CERTIFICATE, reason=CERTIFICATE_REQUIRED)


def _lost(error: httpx.RequestError | ssl.SSLError, url: str) -> ClientError:
    failed = _tls_error(error)
    _, _, alert = ((failed and failed.reason) or "").replace("_", " ").lower().partition(" alert ")
    if "certificate" in alert or alert == "unknown ca":
        return _certificate_error(url, alert)
    if isinstance(error, httpx.LocalProtocolError):
        return InvalidError(f"{url} cannot be asked: {NO_HEADER}")
    if isinstance(failed, ssl.SSLCertVerificationError):
        said = failed.verify_message.rstrip(".")
        text = f"the certificate of the server at {url} is not trusted ({said})"
        return UnreachableError(text, advice=TRUST_CERTIFICATE, is_unsent=True, cause=said)
    if isinstance(error, _UNSENT):
        said = excerpt(str(error)) or type(error).__name__
        advice = MAY_DEMAND_CERTIFICATE if failed else IS_IT_RUNNING  # a server of TLS 1.2 gives no details
        text = f"no answer from {url} ({said})"
        return UnreachableError(text, advice=advice, is_unsent=True, cause=said)
    if isinstance(error, httpx.TimeoutException):
        advice = "look at what the server there prints or logs, and at the network"
        return UnreachableError(f"{url} takes too long to answer", advice=advice)
    return UnreachableError(f"the connection to {url} was lost")


def _grpc_error(error: grpc.aio.AioRpcError, url: str) -> ClientError:
    code, text = error.code(), excerpt(f"{error.code().name}: {error.details() or ''}")
    match code:
        case grpc.StatusCode.UNAUTHENTICATED:
            return UnauthenticatedError(text)
        case grpc.StatusCode.PERMISSION_DENIED:
            return ForbiddenError(text)
        case (
            grpc.StatusCode.UNAVAILABLE
            | grpc.StatusCode.DEADLINE_EXCEEDED
            | grpc.StatusCode.RESOURCE_EXHAUSTED
            | grpc.StatusCode.ABORTED
        ):
            return UnreachableError(f"{url} cannot be reached ({code.name})", cause=text)
        case grpc.StatusCode.NOT_FOUND:
            return NotFoundError(text, reason="TASK_NOT_FOUND")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedError(text)
        case _:
            return InvalidError(text)


_IN_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_AT_FIELD = re.compile(r" at \w+\.([\w.\[\]]+?)\.*$")
"""References to fields in protobuf's errors: from the outermost on, usually with a path behind."""


def _problem_of(error: Exception) -> str:
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


def _body(response: httpx.Response) -> Mapping[str, object]:
    try:
        body = response.json()
    except (httpx.StreamError, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", body) if isinstance(body, dict) else {}


def _error_in(body: Mapping[str, object]) -> Mapping[str, object]:
    error = body.get("error")
    return cast("Mapping[str, object]", error) if isinstance(error, dict) else {}


def _message(body: Mapping[str, object]) -> str:
    message = _error_in(body).get("message")
    return excerpt(message) if isinstance(message, str) else ""


def _reason(body: Mapping[str, object]) -> str:
    """Return the reason of the ErrorInfo in the body of an error, in the form of JSON-RPC and REST."""
    error = _error_in(body)
    details = error.get("data") or error.get("details")
    for each in cast("list[object]", details) if isinstance(details, list) else []:
        if isinstance(each, dict):
            reason = cast("Mapping[str, object]", each).get("reason")
            if isinstance(reason, str):
                return reason
    return ""


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds to wait: of the header, which is a number or a date (RFC 9110 §10.2.3)."""
    after = response.headers.get("retry-after", "")
    if after.isdecimal():
        return min(float(after), _LONGEST_WAIT)
    try:
        seconds = (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return _WAIT
    return max(0, min(seconds, _LONGEST_WAIT))
