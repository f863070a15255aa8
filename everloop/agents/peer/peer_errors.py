"""Errors of peers. The model reads the messages.

PeerError
├── PeerAwayError            it does not answer now
├── PeerCredentialsError     it requires other credentials
├── PeerRefusedError         it answers, and refuses
└── PeerTaskError            its task failed, or was rejected or canceled
"""

import structlog

from everloop.client.errors import (
    BusyError,
    ClientError,
    ForbiddenError,
    ServerError,
    UnauthenticatedError,
    UnreachableError,
)

_log = structlog.get_logger()


class PeerError(Exception):
    """A call of a peer, or its task, failed."""


class PeerAwayError(PeerError):
    """A peer does not answer now."""


class PeerCredentialsError(PeerError):
    """A peer does not accept the credentials of the call, or requires some."""


class PeerRefusedError(PeerError):
    """A peer refuses a request, or its answer is not A2A."""


class PeerTaskError(PeerError):
    """A peer's task has failed, or was rejected or canceled."""


def peer_error(error: ClientError) -> PeerError:
    """Return the error of a call for the model. Raise it `from None`."""
    if isinstance(error, UnauthenticatedError | ForbiddenError):
        return PeerCredentialsError(text_of_error(error))
    return (PeerAwayError if is_away(error) else PeerRefusedError)(text_of_error(error))


def is_away(error: ClientError) -> bool:
    """Whether the peer may answer later."""
    is_broken = isinstance(error, ServerError) and error.status > 0
    return is_broken or isinstance(error, BusyError | UnreachableError)


def is_unsent(error: ClientError) -> bool:
    """Whether the peer has certainly not accepted the request."""
    return isinstance(error, BusyError) or (isinstance(error, UnreachableError) and error.is_unsent)


def text_of_error(error: ClientError) -> str:
    """Return the problem in words for a model; those of the network may name addresses of ours."""
    if isinstance(error, UnreachableError) and error.cause:
        _log.info("a peer could not be asked", error=error.cause)
        return "no connection could be made"
    if error.reason == "TASK_NOT_FOUND":
        return "it does not know its task any more; ask it again"
    status = f"HTTP {error.status}"
    if not error.status:
        return error.problem
    is_of_proxy = isinstance(error, UnreachableError)
    return status if is_of_proxy or error.problem == status else f"{status}: {error.problem}"
