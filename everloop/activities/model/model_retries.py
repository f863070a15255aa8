"""What the failures of a model provider mean for a call: whether it is tried again, and when.

Failures go to the workflow history without their cause, which may quote the prompt.
"""

import random
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

from temporalio.exceptions import ApplicationError

from everloop.activities.lease import ActivityHeartbeat
from everloop.models.interface import (
    ModelBusyError,
    ModelDownError,
    ModelError,
    ModelRefusedError,
    PromptTooLongError,
    UnreadableReplyError,
)
from everloop.stores.providers import HeldBackError
from everloop.workflows.contract import failures
from everloop.workflows.contract.agent_settings import ModelSettings

# How long a model call waits until it is tried again.

LONGEST_BACKOFF = timedelta(seconds=60)

_FIRST_BACKOFF = timedelta(seconds=1)
_DOUBLINGS = 6
_RETRY_AFTER_JITTER = 0.1


def retry_delay(pause: timedelta | None, failures: int, chance: float) -> timedelta:
    """Return the delay after that many failures in a row.

    `pause` is what the provider asks for: no less, and up to 10% more. Otherwise the delay doubles from 1 s
    to 60 s, of which between half and the whole is waited. `chance`, from 0 to 1, parts the calls that
    failed together.
    """
    if pause is not None:
        return pause * (1 + _RETRY_AFTER_JITTER * chance)
    doublings = min(failures - 1, _DOUBLINGS)
    longest = min(_FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (0.5 + 0.5 * chance)


RETRIES = 20
"""How often a call is tried again after failures of the provider, where there is no other model: 429, 5xx, no
connection, a stream that was cut. Attempts that were lost to a dead worker or to an outage of Redis say
nothing about the provider, and are not counted. `ModelSettings.retries` is in place of it, if set."""

FALL_BACK_AFTER = 2
"""After how many failures another model is asked, where there is one, unless `ModelSettings` says it."""

FALL_BACK_WAIT = timedelta(seconds=15)
"""Another model is asked at once where the provider wants a longer wait, unless `ModelSettings` says it."""

UNREADABLE_ANSWERS = 3
"""How often it may answer what is no reply at all: that is a wrong address rather than a bad hour. These are
counted for themselves."""

Kind = Literal["failed", "unreadable"]

_DEFAULTS = ModelSettings()

_OURS = {
    failures.MODEL_REFUSED,
    failures.MODEL_UNAVAILABLE,
    failures.CONTEXT_TOO_LONG,
    failures.PRICE_UNKNOWN,
}
"""Failures whose texts were written here."""


def provider_failure(
    error: ModelError,
    failures_so_far: int,
    chance: float,
    settings: ModelSettings = _DEFAULTS,
    *,
    has_fallback: bool = False,
) -> ApplicationError:
    """Return the failure of `everloop.workflows.contract.failures` that an error of the provider means.

    `failures_so_far` counts those of its kind (`kind_of`), with this one; the last one is not retried.
    `chance` is as for `retry_delay`. Where there is another model to ask, it is waited for less. Raise the
    result `from None`.
    """
    reason = str(error)
    if isinstance(error, ModelRefusedError):
        is_too_long = isinstance(error, PromptTooLongError)
        failure = failures.CONTEXT_TOO_LONG if is_too_long else failures.MODEL_REFUSED
        return ApplicationError(reason, type=failure, non_retryable=True)
    kind, retry_after = kind_of(error), _retry_after(error)
    if kind is None:
        return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, next_retry_delay=retry_after)
    is_down = isinstance(error, HeldBackError) and error.why == "down"
    longest_wait = FALL_BACK_WAIT if settings.fall_back_wait is None else settings.fall_back_wait
    if has_fallback and (is_down or retry_after > longest_wait):
        return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, non_retryable=True)
    if failures_so_far >= _most(kind, settings, has_fallback=has_fallback):
        reason = f"gave up after {failures_so_far} failures: {reason}; check the provider, then try again"
        return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, non_retryable=True)
    delay = retry_delay(retry_after or None, failures_so_far, chance)
    if isinstance(error, HeldBackError):  # others come back then, too, and may find the gate closed again
        delay = max(delay, retry_delay(None, failures_so_far, chance))
    return ApplicationError(reason, type=failures.MODEL_UNAVAILABLE, next_retry_delay=delay)


def _retry_after(error: ModelError) -> timedelta:
    match error:
        case HeldBackError():
            return error.delay
        case ModelBusyError() | ModelDownError():
            return error.retry_after or timedelta()
        case _:
            return timedelta()


def _most(kind: Kind, settings: ModelSettings, *, has_fallback: bool) -> int:
    """Return how many failures of a kind end a call."""
    retries = RETRIES if settings.retries is None else settings.retries
    most = (settings.fall_back_after or FALL_BACK_AFTER) if has_fallback else retries + 1
    return min(most, UNREADABLE_ANSWERS) if kind == "unreadable" else most


def kind_of(error: ModelError) -> Kind | None:
    """Return what an error is counted as; None: it is no failure to wait for what limits leave."""
    if isinstance(error, HeldBackError) and error.why in {"rate", "slots"}:
        return None
    return "unreadable" if isinstance(error, UnreadableReplyError) else "failed"


@contextmanager
def translate_model_errors(
    settings: ModelSettings, heartbeat: ActivityHeartbeat, *, has_fallback: bool = False
) -> Generator[None]:
    """Count a failure of the provider and raise what it means."""
    try:
        yield
    except ModelError as error:
        chance = random.random()  # noqa: S311 -- it spreads retries, it keeps no secret
        kind = kind_of(error)
        counted = heartbeat.count_failure(kind) if kind else 0
        # Its cause would take the provider's text into the workflow history.
        raise provider_failure(error, counted, chance, settings, has_fallback=has_fallback) from None


def failure_fields(failure: ApplicationError) -> dict[str, str]:
    """Return what a log line may say of a failure: texts of others quote plugins, or what a model wrote."""
    return {"failure": failure.message} if failure.type in _OURS else {}
