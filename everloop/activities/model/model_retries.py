"""The consequences of a model provider's failures for a call: whether and when it is retried.

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

# The delay before a model call is retried.

LONGEST_BACKOFF = timedelta(seconds=60)

_FIRST_BACKOFF = timedelta(seconds=1)
_DOUBLINGS = 6
_RETRY_AFTER_JITTER = 0.1


def retry_delay(pause: timedelta | None, failures: int, chance: float) -> timedelta:
    """Return the delay after that many failures in a row.

    `pause` is the delay that the provider asks for; up to 10% is added to it. Otherwise the delay is between
    half and all of a limit that doubles from 1 s to 60 s. `chance`, from 0 to 1, spreads the calls that
    failed together.
    """
    if pause is not None:
        return pause * (1 + _RETRY_AFTER_JITTER * chance)
    doublings = min(failures - 1, _DOUBLINGS)
    longest = min(_FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
    return longest * (0.5 + 0.5 * chance)


RETRIES = 20
"""Maximum retries of a call without a fallback model, after failures of the provider.

These are 429, 5xx, a refused connection and a cut stream. Attempts lost to a dead worker or to an outage of
Redis say nothing about the provider, and are not counted. `ModelSettings.retries` overrides it.
"""

FALL_BACK_AFTER = 2
"""Failures after which another model is called, if there is one. `ModelSettings` overrides it."""

FALL_BACK_WAIT = timedelta(seconds=15)
"""Another model is called at once if the provider asks for a longer wait. `ModelSettings` overrides it."""

UNREADABLE_ANSWERS = 3
"""Limit of unreadable replies, which point to a wrong address rather than an outage. They are counted
separately."""

Kind = Literal["failed", "unreadable"]

_DEFAULTS = ModelSettings()

_OURS = {
    failures.MODEL_REFUSED,
    failures.MODEL_UNAVAILABLE,
    failures.CONTEXT_TOO_LONG,
    failures.PRICE_UNKNOWN,
}
"""Failures with texts of this module."""


def provider_failure(
    error: ModelError,
    failures_so_far: int,
    chance: float,
    settings: ModelSettings = _DEFAULTS,
    *,
    has_fallback: bool = False,
) -> ApplicationError:
    """Return the failure of `everloop.workflows.contract.failures` for an error of the provider.

    `failures_so_far` counts those of its kind (`kind_of`), including this one; the last one is not retried.
    `chance` is as for `retry_delay`. If there is another model, fewer retries and shorter waits apply. Raise
    the result `from None`.
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
    if isinstance(error, HeldBackError):  # other calls return then, too, and may find the gate closed again
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
    """Return the number of failures of a kind that ends a call."""
    retries = RETRIES if settings.retries is None else settings.retries
    most = (settings.fall_back_after or FALL_BACK_AFTER) if has_fallback else retries + 1
    return min(most, UNREADABLE_ANSWERS) if kind == "unreadable" else most


def kind_of(error: ModelError) -> Kind | None:
    """Return the kind under which an error is counted. None: a wait for limits is not a failure."""
    if isinstance(error, HeldBackError) and error.why in {"rate", "slots"}:
        return None
    return "unreadable" if isinstance(error, UnreadableReplyError) else "failed"


@contextmanager
def translate_model_errors(
    settings: ModelSettings, heartbeat: ActivityHeartbeat, *, has_fallback: bool = False
) -> Generator[None]:
    """Count a failure of the provider and raise its `ApplicationError`."""
    try:
        yield
    except ModelError as error:
        chance = random.random()  # noqa: S311 -- it spreads retries, it keeps no secret
        kind = kind_of(error)
        counted = heartbeat.count_failure(kind) if kind else 0
        # Its cause would take the provider's text into the workflow history.
        raise provider_failure(error, counted, chance, settings, has_fallback=has_fallback) from None


def failure_fields(failure: ApplicationError) -> dict[str, str]:
    """Return the fields of a log line about a failure: texts of others quote plugins, or the model."""
    return {"failure": failure.message} if failure.type in _OURS else {}
