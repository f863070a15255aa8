"""What the failures of a model provider mean for a call: whether it is tried again, and when.

Failures go to the workflow history without their cause, which may quote the prompt.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from temporalio.exceptions import ApplicationError

from everloop.models.interface import (
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    PromptTooLongError,
    UnreadableReplyError,
)
from everloop.workflows.contract import failures

# How long a model call waits until it is tried again.

LONGEST_BACKOFF = timedelta(seconds=60)

_FIRST_BACKOFF = timedelta(seconds=1)
_DOUBLINGS = 6
_ASKED_JITTER = 0.1


def retry_delay(asked: timedelta | None, failures: int, chance: float) -> timedelta:
    """Return the delay after that many failures in a row.

    `asked` is what the provider asks for: no less, and up to 10% more. Otherwise the delay doubles from 1 s
    to 60 s, of which between half and the whole is waited. `chance`, from 0 to 1, parts the calls that
    failed together.
    """
    if asked is not None:
        return asked * (1 + _ASKED_JITTER * chance)
    doublings = min(failures - 1, _DOUBLINGS)
    longest = min(_FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (0.5 + 0.5 * chance)


MODEL_FAILURES = 20
"""How often the provider may fail one model call until it ends: 429, 5xx, no connection, a stream that was
cut. Attempts that were lost to a dead worker or to an outage of Redis say nothing about the provider, and are
not counted."""

UNREADABLE_ANSWERS = 3
"""How often it may answer what is no reply at all: that is a wrong address rather than a bad hour. These are
counted for themselves."""

Kind = Literal["failed", "unreadable"]

_MOST: Mapping[Kind, int] = {"failed": MODEL_FAILURES, "unreadable": UNREADABLE_ANSWERS}

_OURS = {
    failures.MODEL_REFUSED,
    failures.MODEL_UNAVAILABLE,
    failures.CONTEXT_TOO_LONG,
    failures.PRICE_UNKNOWN,
}
"""Failures whose texts were written here."""


def provider_failure(error: ModelError, failures_so_far: int, chance: float) -> ApplicationError:
    """Return the failure of `everloop.workflows.contract.failures` that an error of the provider means.

    `failures_so_far` counts those of its kind (`kind_of`), with this one; the last of `MODEL_FAILURES`, or of
    `UNREADABLE_ANSWERS`, is not retried. `chance` is as for `retry_delay`. Raise the result `from None`.
    """
    reason = str(error)
    if isinstance(error, ModelRefusedError):
        is_too_long = isinstance(error, PromptTooLongError)
        kind = failures.CONTEXT_TOO_LONG if is_too_long else failures.MODEL_REFUSED
        return ApplicationError(reason, type=kind, non_retryable=True)
    if failures_so_far >= _MOST[kind_of(error)]:
        reason = f"gave up after {failures_so_far} failures: {reason}; check the provider, then try again"
        return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, non_retryable=True)
    asked = error.retry_after if isinstance(error, ModelBusyError | ModelDownError) else None
    delay = retry_delay(asked, failures_so_far, chance)
    return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, next_retry_delay=delay)


def kind_of(error: ModelError) -> Kind:
    """Return what an error is counted as."""
    return "unreadable" if isinstance(error, UnreadableReplyError) else "failed"


def failure_fields(failure: ApplicationError) -> dict[str, str]:
    """Return what a log line may say of a failure: texts of others quote plugins, or what a model wrote."""
    return {"failure": failure.message} if failure.type in _OURS else {}
