"""What the failures of a model provider mean: one table, from what went wrong to what an operator can do.

The text that a provider sends along may repeat the prompt or parts of the key. Messages are therefore made of
our own words and of codes; failures go to the workflow history without their cause.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError
from temporalio.exceptions import ApplicationError

from everloop.activities.model.reply import IncompleteReplyError, UnreadableStreamError
from everloop.runtime.bounded_answers import AnswerTooLargeError
from everloop.workflows.contract import failures

# How long a model call waits until it is tried again.

MAX_ASKED_DELAY = timedelta(minutes=10)
"""A provider that asks for more is asked again after this."""

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


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long the provider asks to wait, at most 10 minutes; None if it does not say.

    `retry-after-ms` is OpenAI's own; `Retry-After` is seconds or a date (RFC 9110 §10.2.3).
    """
    seconds = _number(headers.get("retry-after-ms"), 0.001) or _number(headers.get("retry-after"), 1)
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=min(seconds, MAX_ASKED_DELAY.total_seconds()))


def _number(text: str | None, unit: float) -> float | None:
    try:
        seconds = float(text or "") * unit
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _seconds_until(date: str | None, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()


MODEL_FAILURES = 20
"""How often the provider may fail one model call until it ends: 429, 5xx, no connection, a stream that was
cut. Attempts that were lost to a dead worker or to an outage of Redis say nothing about the provider, and are
not counted."""

UNREADABLE_ANSWERS = 3
"""How often it may answer what is no reply at all: that is a wrong address rather than a bad hour. These are
counted for themselves."""

PROVIDER_ERRORS = (APIError, AnswerTooLargeError, IncompleteReplyError, UnreadableStreamError)
"""Everything that `provider_failure` explains."""

Kind = Literal["failed", "unreadable"]

_MOST: Mapping[Kind, int] = {"failed": MODEL_FAILURES, "unreadable": UNREADABLE_ANSWERS}

_CONTEXT_TOO_LONG = re.compile(
    r"context.length|context.window|context.size|maximum.context|prompt is too long|input is too long"
    r"|too many (input )?tokens|reduce the length",
    re.IGNORECASE,
)
_CODE = re.compile(r"[\w.\[\]-]{1,80}")

_REFUSALS: Mapping[int, str] = {
    400: "the provider found the request wrong ({}): check that the model takes these tools and messages",
    401: "the provider refused the key ({}): check OPENAI_API_KEY",
    402: "the provider wants to be paid first ({}): check the balance of the account",
    403: "the provider forbids this request ({}): check what OPENAI_API_KEY may use",
    404: "the provider does not know model {model!r} ({}): check EVERLOOP_MODEL, Agent(model=…) and "
    "OPENAI_BASE_URL",
    422: "the provider found the request wrong ({}): check that the model takes these tools and messages",
}
_OTHER_REFUSAL = "the provider refused the request ({}): check OPENAI_BASE_URL and the provider's manual"
_QUOTA = "the quota of the account is used up ({}): check its plan and billing"
_TOO_LONG = "the conversation is too long for the context window of {model!r} ({}): use a larger model"

_WAITS: Mapping[int, str] = {
    408: "the provider gave up waiting for the request ({})",
    409: "the provider reported a conflict ({})",
    429: "the provider limits the rate of requests ({})",
}
_OTHER_WAIT = "the provider failed ({})"


_OURS = {
    failures.MODEL_REFUSED,
    failures.MODEL_UNAVAILABLE,
    failures.CONTEXT_TOO_LONG,
    failures.PRICE_UNKNOWN,
}
"""Failures whose texts were written here."""


@dataclass(frozen=True)
class _Fault:
    """What is known of an error. `status` is None when there was no HTTP error status."""

    status: int | None
    codes: tuple[str, ...]
    message: str

    @property
    def label(self) -> str:
        """The status and the provider's own code, as far as there are any."""
        status = [str(self.status)] if self.status else []
        return ", ".join([*status, *self.codes[:1]]) or "no code"

    @property
    def is_retryable(self) -> bool:
        return self.status is None or self.status in _WAITS or self.status >= 500  # noqa: PLR2004 -- RFC 9110


def provider_failure(error: Exception, model: str, failures_so_far: int, chance: float) -> ApplicationError:
    """Return the failure of `everloop.workflows.contract.failures` that an error of the provider means.

    `failures_so_far` counts those of its kind (`kind_of`), with this one; the last of `MODEL_FAILURES`, or of
    `UNREADABLE_ANSWERS`, is not retried. `chance` is as for `retry_delay`. Raise the result `from None`.
    """
    fault = _fault(error)
    if "context_length_exceeded" in fault.codes or _says_too_long(fault):
        return _refuse(failures.CONTEXT_TOO_LONG, _TOO_LONG, fault, model)
    if "insufficient_quota" in fault.codes:
        return _refuse(failures.MODEL_REFUSED, _QUOTA, fault, model)
    if fault.status and not fault.is_retryable:
        return _refuse(failures.MODEL_REFUSED, _REFUSALS.get(fault.status, _OTHER_REFUSAL), fault, model)
    reason = _reason(error, fault)
    if failures_so_far >= _MOST[kind_of(error)]:
        reason = f"gave up after {failures_so_far} failures: {reason}; check the provider, then try again"
        return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, non_retryable=True)
    delay = retry_delay(_asked_delay(error), failures_so_far, chance)
    return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, next_retry_delay=delay)


def kind_of(error: Exception) -> Kind:
    """Return what an error is counted as."""
    return "unreadable" if isinstance(error, AnswerTooLargeError | UnreadableStreamError) else "failed"


def failure_fields(failure: ApplicationError) -> dict[str, str]:
    """Return what a log line may say of a failure: texts of others quote plugins, or what a model wrote."""
    return {"failure": failure.message} if failure.type in _OURS else {}


def _fault(error: Exception) -> _Fault:
    if not isinstance(error, APIError):
        return _Fault(None, (), "")
    named: tuple[object, ...] = (error.code, error.type)
    codes = tuple(code for code in named if isinstance(code, str) and _CODE.fullmatch(code))
    if isinstance(error, APIStatusError):
        return _Fault(error.status_code, codes, error.message)
    # An error event inside a stream that began well; some providers put the HTTP status into its code.
    status = int(codes[0]) if codes and re.fullmatch(r"[45]\d\d", codes[0]) else None
    return _Fault(status, codes[1:] if status else codes, error.message)


def _says_too_long(fault: _Fault) -> bool:
    may_say_so = fault.status in {None, 400, 413, 422}
    return fault.status == 413 or (may_say_so and bool(_CONTEXT_TOO_LONG.search(fault.message)))  # noqa: PLR2004 -- RFC 9110: content too large


def _refuse(kind: str, template: str, fault: _Fault, model: str) -> ApplicationError:
    return ApplicationError(template.format(fault.label, model=model), type=kind, non_retryable=True)


def _reason(error: Exception, fault: _Fault) -> str:
    if isinstance(error, APITimeoutError):
        return "the provider was silent for too long (EVERLOOP_MODEL_TIMEOUT)"
    if isinstance(error, AnswerTooLargeError):
        return f"the provider cannot be read: {error}; check OPENAI_BASE_URL"
    if isinstance(error, APIConnectionError):
        return "no connection to the provider, or it was lost (check OPENAI_BASE_URL and the network)"
    if isinstance(error, IncompleteReplyError | UnreadableStreamError):
        return str(error)
    return _WAITS.get(fault.status or 0, _OTHER_WAIT).format(fault.label)


def _asked_delay(error: Exception) -> timedelta | None:
    if not isinstance(error, APIStatusError):
        return None
    return retry_after(error.response.headers, datetime.now(UTC))
